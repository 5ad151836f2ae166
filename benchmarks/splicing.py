"""Tokens that follow-ups compute: spliced against rendered, in pairs, with real chat templates.

A model thinks, calls a tool some times, and answers, over several questions. Each assistant
message is a request of its own, as from clients that run their own tools. Both ways have the same
words. A request computes what the prefix cache cannot find in full blocks of any earlier request
of its conversation. No model runs: the counts depend on the tokens alone.
"""

import argparse
import asyncio
import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

from benchmarks.evidence.tables import Table as Told
from benchmarks.evidence.tables import add_option, tell
from caesura.scheduler.answers import Answers
from caesura.scheduler.messages import Message, Sampling, SessionSpec
from caesura.scheduler.vllm.client.rendering.render import Renderer
from caesura.scheduler.vllm.client.rendering.splice import Splicer
from caesura.scheduler.vllm.client.rendering.threads import RenderThreads
from tests.formats.rendering import Call, glm, hermes, llama3_json
from tests.scheduler.real_templates import ENDS, renderer_of

BLOCK_TOKENS = 16
CONTEXT_TOKENS = 1 << 20
WORDS = ["the", "sum", "of", "this", "list", "is", "about", "right", "but", "we", "look", "again"]
WRITERS: dict[str, Callable[[Sequence[Call]], str]] = {
    "qwen3": hermes,
    "glm4moe": glm,
    "llama3_1": llama3_json,
    "deepseek_r1_distill": hermes,
}
TOOL = {
    "type": "function",
    "function": {
        "name": "lookup",
        "description": "Look something up.",
        "parameters": {"type": "object", "properties": {"key": {"type": "string"}}},
    },
}


@dataclass(frozen=True, slots=True)
class Shape:
    """The size of a conversation; lengths are in words."""

    questions: int
    calls: int
    thought: int
    answer: int
    result: int


@dataclass(slots=True)
class Cache:
    """The contexts of one conversation, and what its requests computed."""

    contexts: list[list[int]] = field(default_factory=list)
    computed: list[int] = field(default_factory=list)

    def prompt(self, tokens: list[int]) -> None:
        """Count a request's prompt."""
        cached = max((shared(tokens, each) for each in self.contexts), default=0)
        self.computed.append(len(tokens) - cached)

    def end(self, tokens: list[int]) -> None:
        """Keep the context of a request; the KV of the last token was never computed."""
        self.contexts.append(tokens[:-1])


def shared(tokens: Sequence[int], others: Sequence[int]) -> int:
    """Return the number of equal tokens at the begin, in full blocks; a prompt keeps one token."""
    most = min(len(tokens) - 1, len(others))
    equal = next((at for at in range(most) if tokens[at] != others[at]), most)
    return equal // BLOCK_TOKENS * BLOCK_TOKENS


def turns(shape: Shape, template: str, rng: random.Random) -> Iterator[tuple[Message, str, bool]]:
    """Yield what each assistant message of a question says, as a message and as written."""

    def text(words: int) -> str:
        return " ".join(rng.choice(WORDS) for _ in range(words))

    for number in range(shape.calls + 1):
        thought = f"<think>\n{text(shape.thought)}\n</think>\n\n" if shape.thought else ""
        if number == shape.calls:
            answer = text(shape.answer)
            yield {"role": "assistant", "content": thought + answer}, thought + answer, True
            continue
        call = Call("lookup", {"key": text(6)})
        function = {"name": call.name, "arguments": f'{{"key": "{call.arguments["key"]}"}}'}
        made = {"id": f"call{rng.randrange(10**5):05}", "type": "function", "function": function}
        message = {"role": "assistant", "content": thought, "tool_calls": [made]}
        yield message, thought + WRITERS[template]([call]), False


async def conversation(shape: Shape, template: str, splice: bool, seed: int) -> Cache:
    """Return the cache of one conversation, spliced or rendered."""
    rng, cache = random.Random(seed), Cache()
    tokenizer, _ = renderer_of(template)
    ends = frozenset(map(tokenizer.convert_tokens_to_ids, ENDS[template]))
    renderer = Renderer(tokenizer, ends, CONTEXT_TOKENS)
    answers = Answers() if splice else None
    splicer = Splicer(renderer, RenderThreads(), CONTEXT_TOKENS, answers)
    spec = SessionSpec([TOOL] if shape.calls else ())
    messages: list[Message] = []
    for number in range(shape.questions):
        asked = " ".join(rng.choice(WORDS) for _ in range(shape.answer))
        messages.append({"role": "user", "content": f"Question {number}: {asked}?"})
        for message, written, last in turns(shape, template, rng):
            found = await splicer.follow_up(messages, spec, Sampling())
            spliced = found.tokens if found is not None else None
            prompt = spliced or renderer.prompt(messages, spec.tools)
            cache.prompt(prompt)
            end = ENDS[template][0 if last or len(ENDS[template]) < 2 else 1]
            tokens = [*prompt, *renderer.encode(written), tokenizer.convert_tokens_to_ids(end)]
            cache.end(tokens)
            messages.append(message)
            await splicer.remember(messages, spec, tokens)
            for call in message.get("tool_calls") or ():
                result = " ".join(rng.choice(WORDS) for _ in range(shape.result))
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
    return cache


async def main(shape: Shape, rounds: int) -> Table:
    """Return a table of the tokens that a follow-up computes on average."""
    table = Table(title=f"{shape.questions} questions, {rounds} pairs; tokens per follow-up")
    context = "last context,"
    columns = ("template", "calls", "rendered", "spliced", "saved")
    for column in (*columns, f"{context} rendered", f"{context} spliced"):
        table.add_column(column, justify="right")
    for template in WRITERS:
        for calls in (0, shape.calls) if template != "deepseek_r1_distill" else (0,):
            sized = Shape(shape.questions, calls, shape.thought, shape.answer, shape.result)
            pairs = [
                [await conversation(sized, template, splice, seed) for splice in (False, True)]
                for seed in range(rounds)
            ]
            rendered, spliced = (
                statistics.fmean(n for pair in pairs for n in pair[way].computed[1:])
                for way in (0, 1)
            )
            lengths = (
                statistics.fmean(len(pair[way].contexts[-1]) for pair in pairs) for way in (0, 1)
            )
            saved = f"{1 - spliced / rendered:.0%}"
            counts = [f"{count:,.0f}" for count in (rendered, spliced)]
            table.add_row(template, str(calls), *counts, saved, *(f"{n:,.0f}" for n in lengths))
    return table


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=8)
    parser.add_argument("--calls", type=int, default=3, help="calls of a tool per question")
    parser.add_argument("--thought", type=int, default=300, help="words of thinking per message")
    parser.add_argument("--answer", type=int, default=80, help="words of questions and answers")
    parser.add_argument("--result", type=int, default=120, help="words of a tool's result")
    parser.add_argument("--rounds", type=int, default=3)
    add_option(parser)
    given = parser.parse_args()
    sizes = Shape(given.questions, given.calls, given.thought, given.answer, given.result)
    table = asyncio.run(main(sizes, given.rounds))
    Console(width=110).print(table)
    tell(given.tables, [Told.drawn(table, "")])
