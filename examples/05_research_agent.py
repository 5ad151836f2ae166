"""A research agent: questions to your own documents, answered with their sources.

    python examples/05_research_agent.py
    python examples/05_research_agent.py --model Qwen/Qwen3-8B ~/notes handbook.html

Without `--model` no model is asked: a script stands in for it, which searches for each question
and quotes the first sentences of what it found. The documents, the index, the tool and the loop of
turns are the real ones. `--model bundled` asks the bundled model, anything else is a model's id or
directory. Without documents it reads those of this project.
"""

import argparse
import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

from caesura import Agent, ScriptedEngine
from caesura.runtime.engine import Engine
from caesura.runtime.testing import Item, call, say
from caesura.scheduler.messages import Message, ToolSpec
from caesura.tools.config.caesura_toml import Config, DataSettings
from caesura.tools.search.corpus import Corpus, corpus_path, files_at
from caesura.tools.search.reading import ReadError

DOCUMENTS = Path(__file__).parents[1] / "docs"
QUESTIONS = (
    "What happens to blocks that have a copy on the host?",
    "Which environment variable moves the calibration files?",
)
INSTRUCTIONS = "Search before you answer. Answer in a sentence, and name the source."


def index(documents: Sequence[Path], data: Path) -> None:
    """What `caesura kb add --corpus research DOCUMENTS` does."""
    with Corpus(corpus_path(data, "research")) as corpus:
        for path, source in files_at(documents).items():
            try:
                corpus.add(path, source)
            except ReadError as error:
                print(f"skipped {path}: {error}")
        passages = sum(file.passages for file in corpus.files())
        print(f"{len(corpus.files())} files, {passages} passages")


def script(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Item:
    """Stand in for a model: search for the question, then quote the first result."""
    last = messages[-1]
    text = str(last["content"])
    if last["role"] == "user":
        return call("search", query=text)
    head, _, passage = text.partition("\n\n")[0].partition("\n")
    return say(f"{head.removeprefix('[1] ')} says: {passage[:200]}")


async def ask(model: str | Engine | None, data: Path) -> None:
    config = Config(
        tools={"search": {"corpus": "research", "about": "Search the user's documents."}},
        data=DataSettings(directory=data),
    )
    async with Agent(model, ["search"], config=config, instructions=INSTRUCTIONS) as agent:
        for question in QUESTIONS:
            print(f"\n> {question}")
            answer = await agent.run(question)
            for asked, result in answer.calls:
                print(f"  {asked.name} {asked.arguments}")
                heads = (line for line in result.content.splitlines() if line.startswith("["))
                print("\n".join(f"    {head}" for head in heads))
            print(answer)


def main() -> None:
    parser = argparse.ArgumentParser(description="Ask questions to your own documents.")
    parser.add_argument("documents", nargs="*", type=Path, default=[DOCUMENTS])
    parser.add_argument("--model", help="'bundled', an id or a directory; default: a script")
    options = parser.parse_args()
    model = None if options.model == "bundled" else options.model or ScriptedEngine(script)
    with tempfile.TemporaryDirectory() as data:
        index(options.documents, Path(data))
        asyncio.run(ask(model, Path(data)))


if __name__ == "__main__":
    main()
