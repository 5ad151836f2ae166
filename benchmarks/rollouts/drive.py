"""Ways to run a step's samples: as trainers do over stock vLLM, and as sessions that pause.

A trainer that makes rollouts turn by turn, as TRL's `GRPOTrainer` does (`_tool_call_loop`, 1.16.0),
sends all samples at once, waits for the last one, calls the tools, and sends all contexts again.
Its tools run one sample after the other; a kinder one runs them all at once. Others (verl's agent
loop, prime-rl) let each sample go on by itself, and send its whole context after each call.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vllm.inputs import tokens_input
from vllm.v1.engine.async_llm import AsyncLLM

from benchmarks.handling import STOCK
from benchmarks.handling.drive import Driver, sampling
from benchmarks.handling.records import SessionRecord
from benchmarks.rollouts.groups import Sample

OURS = "sessions"
BASELINE = "samples"


@dataclass(frozen=True)
class Way:
    """A system of the benchmark of handlings, and how the samples are sent to it.

    With `turns` all samples of a step go turn by turn; `together`: their tools run at once.
    """

    system: str
    about: str
    turns: bool = False
    together: bool = False


WAYS: Mapping[str, Way] = {
    "trl": Way(STOCK, "stock, turn by turn, tools one by one (TRL)", turns=True),
    "turns": Way(STOCK, "stock, turn by turn, tools at once", turns=True, together=True),
    BASELINE: Way(STOCK, "stock, each sample by itself"),
    OURS: Way("caesura", "Caesura, each sample a session"),
}


class Steps(Driver):
    """Runs all samples of a trainer's step."""

    def __init__(self, llm: AsyncLLM, way: Way) -> None:
        super().__init__(llm, pausing=way.system != STOCK)
        self._way = way

    async def step(self, samples: Sequence[Sample]) -> None:
        """Run the samples to the end of the last one."""
        if self._way.turns:
            await self._turn_by_turn(samples)
            return
        tasks = [asyncio.create_task(self.run(sample)) for sample in samples]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _turn_by_turn(self, samples: Sequence[Sample]) -> None:
        left = [_Open(sample) for sample in samples]
        self.records += [each.record for each in left]
        turn = 0
        while left:
            await asyncio.gather(*(self._generate(each, turn) for each in left))
            tools = [self._tool(each.sample.segments[turn], each.record) for each in left]
            if self._way.together:
                await asyncio.gather(*tools)
            else:
                for tool in tools:
                    await tool
            turn += 1
            for each in left:
                if len(each.sample.segments) == turn:
                    each.record.ended = self.now()
            left = [each for each in left if len(each.sample.segments) > turn]

    async def _generate(self, one: "_Open", turn: int) -> None:
        segment = one.sample.segments[turn]
        one.tokens += one.words[turn]
        seen = self._begin(one.record, segment, len(one.tokens))
        outputs = self._llm.generate(
            tokens_input(list(one.tokens)), sampling(segment, False), f"{one.sample.key}-{turn}"
        )
        one.tokens += await self._read(outputs, seen)


class _Open:
    """A sample that has turns left, and its tokens so far."""

    def __init__(self, sample: Sample) -> None:
        self.sample = sample
        self.record = SessionRecord(sample.key, sample.kind, 0.0)
        self.words = sample.words()
        self.tokens: list[int] = []
