"""The fake model runner: it decodes a token for each request that is fully computed, and counts.

This is the inner loop of the simulator: it visits every request of every step once.
"""

from dataclasses import dataclass, field
from math import ceil
from typing import Any

from caesura.scheduler.vllm.engine.port import EngineState
from caesura.scheduler.vllm.engine.port.requests import is_preempted
from caesura.simulator.engine.live import Live
from caesura.simulator.engine.tokens import WORD
from caesura.simulator.machine import StepShape, pairs_within

NOTHING: list[int] = []
"""The decoded tokens of a request whose chunk does not reach the end of its context."""


@dataclass(slots=True)
class Work:
    """The work of a step.

    `sampled` holds the decoded tokens of each request. The sessions in `first` and `ended` have
    decoded the first and the last token of their segment. `again` query tokens had been computed
    before. They have `again_pairs` query-key pairs, of which layers with a window compute
    `again_windowed`, and their requests fill `again_blocks` blocks.
    """

    shape: StepShape
    sampled: list[list[int]]
    first: list[Live]
    ended: list[Live]
    decode_tokens: int
    again: int
    again_pairs: float
    again_windowed: float
    again_blocks: int
    preempted: int

    @property
    def shape_without_again(self) -> StepShape:
        """Return the shape of the step without recomputed tokens."""
        shape = self.shape
        return StepShape(
            tokens=shape.tokens - self.again,
            sequences=shape.sequences,
            decodes=shape.decodes,
            context=shape.context,
            longest=shape.longest,
            pairs=max(0.0, shape.pairs - self.again_pairs),
            windowed=shape.windowed,
            windowed_pairs=max(0.0, shape.windowed_pairs - self.again_windowed),
        )


@dataclass(slots=True)
class Runner:
    """Executes scheduled steps; `live` are the sessions by request id.

    `window` is that of the model's layers that have one, in tokens; 0: none has.
    """

    port: EngineState
    live: dict[str, Live]
    window: int = 0
    _again: list[tuple[int, float, float, int]] = field(default_factory=list)

    def execute(self, output: Any) -> Work:
        """Return the work of a step, and advance its sessions."""
        preempted = self._preempted(output.preempted_req_ids) if output.preempted_req_ids else 0
        self._admit(self.port.admitted_in(output))
        sessions = self.live
        sampled: list[list[int]] = []
        first: list[Live] = []
        ended: list[Live] = []
        context = longest = decodes = decoded = 0
        pairs = 0.0
        chunks = self.port.chunks_of(output)
        for request_id, count, computed, unfinished in chunks:
            live = sessions[request_id]
            context += computed
            if computed > longest:
                longest = computed
            if count == 1:
                decodes += 1
            else:
                pairs += count * (computed - (count - 1) / 2)
            if computed - count < live.reached:
                self._compute_again(live, computed, count)
            elif count == 1:
                decoded += 1
            if unfinished:
                live.reached = max(live.reached, computed)
                sampled.append(NOTHING)
                continue
            left = live.left = live.left - 1
            if not live.first:
                first.append(live)
            if left:
                sampled.append([WORD])
            else:
                live.reached = computed
                ended.append(live)
                sampled.append([live.last])
        tokens, sequences = output.total_num_scheduled_tokens, len(sampled)
        windowed = self._windowed(chunks) if self.window else (0, 0.0)
        shape = StepShape(tokens, sequences, decodes, context, longest, pairs, *windowed)
        again = self._take_again()
        return Work(shape, sampled, first, ended, decoded, *again, preempted)

    def _windowed(self, chunks: list[tuple[str, int, int, bool]]) -> tuple[int, float]:
        """Return the context and the query-key pairs of a step as layers with a window see them."""
        window, context, pairs = self.window, 0, 0.0
        for _, count, computed, _ in chunks:
            context += min(computed, window)
            if count > 1:
                pairs += pairs_within(window, computed - count, computed)
        return context, pairs

    def _admit(self, new: list[tuple[str, int]]) -> None:
        """Record the cached tokens of the requests that join the batch."""
        for request_id, computed in new:
            live = self.live[request_id]
            if not live.admitted:
                live.admitted = True
                live.result.cached_tokens += computed

    def _preempted(self, request_ids: set[str]) -> int:
        """Record how far preempted requests had come, and return their number.

        vLLM lists pauses here too, which are skipped. All decoded tokens but the last have been
        computed.
        """
        preempted = 0
        for request_id in request_ids:
            request = self.port.request(request_id)
            if request is None or not is_preempted(request):
                continue
            live = self.live[request_id]
            live.result.preemptions += 1
            preempted += 1
            if live.decoded:
                live.reached = request.num_tokens - 1
        return preempted

    def _compute_again(self, live: Live, computed: int, count: int) -> None:
        """Count the recomputed tokens of a chunk."""
        start = computed - count
        again = min(computed, live.reached) - start
        live.result.recomputed_tokens += again
        blocks = ceil(self.port.groups.blocks(computed, self.port.attention_tokens))
        pairs = again * (start + (again + 1) / 2)
        windowed = pairs_within(self.window, start, start + again)
        self._again.append((again, pairs, windowed, blocks))

    def _take_again(self) -> tuple[int, float, float, int]:
        if not self._again:
            return 0, 0.0, 0.0, 0
        tokens, pairs, windowed, blocks = zip(*self._again, strict=True)
        self._again = []
        return sum(tokens), sum(pairs), sum(windowed), sum(blocks)
