"""Random histories of sessions: runs with tools, forks, rewinds, edits, and moves elsewhere."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from hypothesis import strategies as st

from caesura import Agent, RequestFailed, Session, UsageError, tool
from caesura.runtime.testing import Item, calls, fail, inline, say
from caesura.runtime.testing import call as calling
from caesura.trajectories import Trajectory
from tests.runtime.trajectories.computed import ComputedEngine

Step = tuple[int, tuple[str, str]]
"""In which of the sessions something is done, and what, with a prompt."""
Elsewhere = Callable[[Agent[Any, Any], Session[Any]], Awaitable[None]]


@tool
def double(n: int) -> int:
    """Double a number."""
    return 2 * n


def model(messages: Any, tools: Any) -> Item:
    """Do what the last message asks for."""
    match str(messages[-1]["content"]).split():
        case ["call", *numbers]:
            return calls(*(calling("double", n=int(each)) for each in numbers), text="So:")
        case ["inline", number]:
            return inline("It is ", "double", n=int(number))
        case ["fail", *words]:
            return fail(RequestFailed("broken"), " ".join(words))
        case _:
            return say("Yes.")


PROMPTS = st.sampled_from(
    ["Hi.", "call 1", "call 1 2", "inline 3", "fail", "fail in the middle", "Hi."]
)
STEPS = st.one_of(
    PROMPTS.map(lambda text: ("run", text)),
    st.sampled_from([("fork", ""), ("rewind", ""), ("edit", ""), ("state", "")]),
)
HISTORIES = st.lists(st.tuples(st.integers(0, 3), STEPS), min_size=1, max_size=14)


async def nowhere(agent: Agent[Any, Any], session: Session[Any]) -> None:
    """Leave a session where it is."""


async def played(
    engine: ComputedEngine, steps: list[Step], there_and_back: Elsewhere = nowhere
) -> list[tuple[str, Trajectory]]:
    """Do the steps, each in one of the sessions; return the trajectories."""
    agent = Agent(engine, [double], trajectories=True)
    sessions = [agent.session()]
    for which, (what, text) in steps:
        session = sessions[which % len(sessions)]
        match what:
            case "run":
                with suppress(RequestFailed):
                    await session.run(text)
            case "fork":
                sessions.append(session.fork())
            case "rewind":
                with suppress(UsageError):  # there is nothing to forget
                    session.rewind()
            case "edit" if session.messages and session.messages[-1]["role"] == "assistant":
                answer = {"role": "assistant", "content": "No."}
                session.messages = [*session.messages[:-1], answer]
            case "state":
                await there_and_back(agent, session)
    found = [(each.id, await each.trajectory()) for each in sessions]
    for each in sessions:
        await each.aclose()
    return found
