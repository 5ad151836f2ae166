"""Branches of a session: the best of four answers, a majority's, and a tree of tool calls.

    python examples/21_branches.py

It runs on the bundled model. All branches begin with the session's own tokens, which the engine
has in its prefix cache: the last lines tell how many tokens of each were computed.
"""

import asyncio
from contextlib import aclosing
from typing import Any

from caesura import Agent, Sampling, Session
from caesura.runtime.events import TurnEnded
from caesura.search import Candidate, best_of, majority, tree_search
from caesura.tools.calculator.tool import calculator

WARM = Sampling(temperature=1.0, seed=1, max_tokens=60)


def exact(made: Candidate[Any]) -> float:
    """Score an answer: it says the product, and needs few words for it."""
    text = made.answer.text if made.answer is not None else ""
    return ("816" in text) - len(text) / 10_000


async def computed(session: Session[Any], prompt: str) -> str:
    """Run a prompt; tell the context's tokens, and how many of them the engine computed."""
    context = session.usage.prompt_tokens + session.usage.completion_tokens
    async with aclosing(session.stream(prompt)) as events:
        ends = [event async for event in events if isinstance(event, TurnEnded)]
    context += ends[0].prompt_tokens
    return f"{context} tokens of context, {context - ends[0].cached_tokens} of them computed"


async def main() -> None:
    """Search among branches of one session."""
    async with Agent(tools=[calculator]) as agent, agent.session() as session:
        await session.run("What is 12 * 7?")

        async with await best_of(
            session, "What is 48 * 17?", 4, score=exact, sampling=WARM
        ) as best:
            print("best of 4:", best.answer.text)

        async with await majority(session, "What is 48 * 17?", 5, sampling=WARM) as vote:
            print(f"majority: {vote.answer.text} ({vote.score:.0%})")

        found = await tree_search(
            session,
            "What is 48 * 17?",
            score=exact,
            then=lambda made: None if exact(made) > 0.9 else "Please check it again.",
            width=2,
            keep=1,
            depth=2,
            sampling=WARM,
        )
        async with found:
            print(f"tree: {found.answer.text} ({len(found.candidates)} branches)")

        for branch in session.fork(3):
            async with branch:
                print(await computed(branch, "Thank you! Now, what is 3 + 4?"))


if __name__ == "__main__":
    asyncio.run(main())
