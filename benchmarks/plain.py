"""Requests without tools: Caesura's scheduler against vLLM's own, in pairs.

Engines with the same settings stand side by side; each round runs the same requests on all, one
after the other, in every order in turn. Ratios are to stock, per pair: throughput above 1 and
latency below 1 are in Caesura's favour. A second stock engine is the control: what its ratios lie
from 1 is what the machine and the benchmark itself make.
"""

import argparse
import asyncio
import random
import statistics
import time
import uuid
from itertools import permutations

from rich.console import Console
from rich.progress import track
from rich.table import Table
from vllm import SamplingParams
from vllm.inputs import tokens_input
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.async_llm import AsyncLLM

from benchmarks.engines import BASELINE, caesura_engine, stock_engine
from benchmarks.evidence.tables import Table as Told
from benchmarks.evidence.tables import add_option, tell
from benchmarks.pairs import ratio

STOCK, CONTROL = "stock", "stock again"


async def one_request(llm: AsyncLLM, prompt: list[int], tokens: int) -> tuple[float, float]:
    """Return the request's latency and its time to first token, in seconds."""
    params = SamplingParams(
        max_tokens=tokens, temperature=0, ignore_eos=True, output_kind=RequestOutputKind.DELTA
    )
    began = time.perf_counter()
    first = 0.0
    async for _ in llm.generate(tokens_input(list(prompt)), params, uuid.uuid4().hex):
        first = first or time.perf_counter() - began
    return time.perf_counter() - began, first


async def one_round(llm: AsyncLLM, prompts: list[list[int]], tokens: int) -> dict[str, float]:
    """Run all requests at once; return tokens per second, mean latency and mean TTFT."""
    began = time.perf_counter()
    timed = await asyncio.gather(*(one_request(llm, prompt, tokens) for prompt in prompts))
    seconds = time.perf_counter() - began
    return {
        "throughput": len(prompts) * tokens / seconds,
        "latency": statistics.fmean(latency for latency, _ in timed),
        "ttft": statistics.fmean(first for _, first in timed),
    }


async def measure(rounds: int, tokens: int, concurrency: list[int], console: Console) -> Table:
    """Run the pairs; return a table of ratios."""
    rng = random.Random(0)
    first, second = stock_engine(), stock_engine()
    ours = caesura_engine()
    engines = {STOCK: first, "caesura": ours.llm, CONTROL: second}
    orders = list(permutations(engines))
    table = Table(title=f"To the {BASELINE}; median \\[middle half of {rounds} pairs]")
    for column in ("concurrent", "engine", "throughput", "latency", "TTFT"):
        table.add_column(column, justify="right")
    try:
        for count in concurrency:
            seen: dict[str, list[dict[str, float]]] = {name: [] for name in engines}
            for index in track(range(-1, rounds), f"{count} at once", console=console):
                prompts = [[rng.randrange(300, 900) for _ in range(64)] for _ in range(count)]
                for name in orders[index % len(orders)]:
                    result = await one_round(engines[name], prompts, tokens)
                    if index >= 0:
                        seen[name].append(result)
            for name in ("caesura", CONTROL):
                ratios = [
                    ratio([r[key] for r in seen[name]], [r[key] for r in seen[STOCK]])
                    for key in ("throughput", "latency", "ttft")
                ]
                table.add_row(str(count), name, *map(str, ratios))
    finally:
        first.shutdown()
        second.shutdown()
        await ours.close()
    return table


def main() -> None:
    """Parse the command line and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=24, help="pairs per concurrency")
    parser.add_argument("--tokens", type=int, default=96, help="tokens to decode per request")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 8, 32])
    add_option(parser)
    args = parser.parse_args()
    console = Console(width=110)
    table = asyncio.run(measure(args.rounds, args.tokens, args.concurrency, console))
    console.print(table)
    tell(args.tables, [Told.drawn(table)])


if __name__ == "__main__":
    main()
