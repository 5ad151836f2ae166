"""Driving one session through an engine, and writing down when what came.

The model's words are random, so what a session decodes is forced: no stop token before so many
tokens are out, and then nothing but the call. Every system decodes the same number of tokens.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from vllm import SamplingParams
from vllm.inputs import tokens_input
from vllm.outputs import RequestOutput
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.async_llm import AsyncLLM

from benchmarks.handling.model import CALLS, END, WORDS
from benchmarks.handling.records import SegmentRecord, SessionRecord
from benchmarks.handling.workload import Segment, Session
from caesura.intercept.calls.watch import WatchPlan
from caesura.scheduler.vllm.client.request import LiveRequest
from caesura.scheduler.vllm.wire import REPORT_KEY, WATCH_KEY

BARRED = dict.fromkeys(range(WORDS.start), -100.0)
"""The special tokens, such as those around calls: random weights could write one and end a turn."""


def last_token(segment: Segment) -> int:
    """Return the token that ends a segment: the call of its tool, if it has one."""
    return CALLS[segment.tool] if segment.tool else END


def sampling(segment: Segment, pausing: bool) -> SamplingParams:
    """Decode exactly so many tokens, of which the last is the call.

    vLLM masks stop tokens until `min_tokens` are out; from then on the bias leaves no other choice.
    """
    last = last_token(segment)
    watch = WatchPlan(("hermes",), turn="holding" if segment.tool else "fresh")
    return SamplingParams(
        temperature=0,
        min_tokens=segment.decode_tokens - 1,
        # Never reached: the stop token comes first.
        max_tokens=segment.decode_tokens + 1,
        stop_token_ids=[last],
        ignore_eos=True,
        logit_bias=BARRED | {last: 100.0},
        output_kind=RequestOutputKind.DELTA,
        detokenize=False,
        extra_args={WATCH_KEY: watch.to_wire()} if pausing else None,
    )


class Driver:
    """Runs sessions on one engine; `records` holds what they saw, those under way included."""

    def __init__(self, llm: AsyncLLM, pausing: bool) -> None:
        self._llm = llm
        self._pausing = pausing
        self.began = time.perf_counter()
        self.records: list[SessionRecord] = []

    def now(self) -> float:
        return time.perf_counter() - self.began

    async def run(self, session: Session) -> SessionRecord:
        """Wait for the session's arrival and serve it to its end."""
        words = session.words()
        await asyncio.sleep(session.arrival_seconds - self.now())
        record = SessionRecord(session.key, session.kind, session.arrival_seconds)
        self.records.append(record)
        if self._pausing:
            await self._live(session, record, words)
        else:
            await self._anew(session, record, words)
        record.ended = self.now()
        return record

    async def _anew(self, session: Session, record: SessionRecord, words: list[list[int]]) -> None:
        """Serve every segment as a new request of all tokens so far, as agents do today."""
        tokens: list[int] = []
        for index, segment in enumerate(session.segments):
            tokens += words[index]
            seen = self._begin(record, segment, len(tokens))
            outputs = self._llm.generate(
                tokens_input(list(tokens)), sampling(segment, False), f"{session.key}-{index}"
            )
            tokens += await self._read(outputs, seen)
            await self._tool(segment, record)

    async def _live(self, session: Session, record: SessionRecord, words: list[list[int]]) -> None:
        """Serve the session as one request that pauses in the engine."""
        params = [sampling(segment, True) for segment in session.segments]
        request = LiveRequest(self._llm, session.key, words[0], params[0])
        context, said = 0, [0]
        try:
            for index, segment in enumerate(session.segments):
                context += len(words[index])
                seen = self._begin(record, segment, context)
                if index:
                    # The last token of a turn has no KV yet, so it is sent again.
                    request.push([said[-1], *words[index]], params[index])
                said = await self._read(request.turn(), seen)
                context += len(said)
                await self._tool(segment, record)
            await request.end()
        except asyncio.CancelledError:
            await request.abort()
            raise

    def _begin(self, record: SessionRecord, segment: Segment, context: int) -> SegmentRecord:
        # After the first segment, the token that ended the one before is new to the engine too.
        given = segment.given_tokens + (1 if record.segments else 0)
        seen = SegmentRecord(
            index=len(record.segments),
            tool=segment.tool,
            sent=self.now() if record.segments else record.arrived,
            given_tokens=given,
            context_tokens=context,
            decode_tokens=segment.decode_tokens,
        )
        record.segments.append(seen)
        return seen

    async def _read(self, outputs: AsyncIterator[RequestOutput], seen: SegmentRecord) -> list[int]:
        said: list[int] = []
        async for output in outputs:
            seen.first = seen.first or self.now()
            said += output.outputs[0].token_ids
            seen.said = len(said)
            if not self._pausing or seen.index == 0:
                seen.cached_tokens = output.num_cached_tokens or 0
            _note_resume(seen, output.kv_transfer_params)
        seen.ended = self.now()
        assert len(said) == seen.decode_tokens, f"decoded {said}"
        return said

    async def _tool(self, segment: Segment, record: SessionRecord) -> None:
        if segment.tool:
            began = self.now()
            await asyncio.sleep(segment.tool_seconds)
            record.tool_seconds += self.now() - began


def resume_of(params: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the report of a resume in an output's `kv_transfer_params`, if there is one."""
    return ((params or {}).get(REPORT_KEY) or {}).get("resume")


def _note_resume(seen: SegmentRecord, params: dict[str, Any] | None) -> None:
    resume = resume_of(params)
    if resume is not None:
        seen.handling = resume["handling"]
        seen.cached_tokens = resume["cached_tokens"]
        seen.loaded_tokens = resume.get("loaded_tokens", 0)
