"""An agent that asks a second model: two engines, and a request that is paused between them.

    python examples/10_ask_an_expert.py

The expert is served by an engine of its own, a process of this machine, and has a calculator. The
agent has none: its only tool asks the expert. While the expert works, the agent's request is paused
in its engine, which is told how long the answer will take. Both engines serve the bundled model,
which knows no tool of the name `ask_model`; so the tool is called `calculator` here. This small
model also repeats some words of its expert in its answers.
"""

import asyncio
import tempfile
from contextlib import aclosing
from pathlib import Path

from caesura import Agent, Tool
from caesura.planning.application.application import Model
from caesura.planning.run.host import Endpoint, Replica
from caesura.planning.run.processes import ProcessHost
from caesura.runtime.events import RunEnded, ToolReturned, TurnEnded
from caesura.runtime.launch import BUNDLED_MODEL
from caesura.tools.model import ask_model

ENGINE = ("--max-model-len", "2048", "--dtype", "float32", "--kv-cache-memory-bytes", "268435456")
EXPERT = Replica(Model("expert", BUNDLED_MODEL, ENGINE), 0, (1,))
QUESTIONS = ("What is 48*17?", "What is 12*7?", "What is 905-368?")


def asks(expert: Endpoint) -> Tool:
    """Return the agent's tool, which asks the expert about an expression."""
    return ask_model(
        expert.url,
        expert.model,
        name="calculator",
        parameter="expression",
        about="Evaluate an arithmetic expression.",
        prompt="What is {question}?",
        server_tools=("calculator",),
        max_tokens=60,
    )


async def answer(agent: Agent, question: str) -> None:
    """Print a run: what the agent asked, how long it was paused, and its answer."""
    print(f"\n> {question}")
    async with agent.session() as session, aclosing(session.stream(question)) as events:
        async for event in events:
            match event:
                case ToolReturned(call=call, result=result):
                    print(f"  {call.name} {call.arguments} <- {result.content!r}")
                case TurnEnded(resume=resume) if resume is not None:
                    kept = f"{resume.cached_tokens} of {resume.context_tokens} tokens kept"
                    print(f"  paused {resume.pause_seconds:.2f} s; {kept}")
                case RunEnded(text=text):
                    print(f"  {text}")
                case _:
                    pass


async def main(logs: Path) -> None:
    host = ProcessHost(2, logs)
    try:
        await host.place(EXPERT)
        expert = await host.load(EXPERT)
        print(f"the expert answers at {expert.url}")
        async with Agent(None, [asks(expert)]) as agent:
            for question in QUESTIONS:
                await answer(agent, question)
    finally:
        await host.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        asyncio.run(main(Path(made)))
