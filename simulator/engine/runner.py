"""The fake model runner: it samples a token where a request's end is reached, and counts.

This is the inner loop of the simulator: it looks once at every request of every step.
"""

from dataclasses import dataclass, field
from typing import Any

from caesura.scheduler.vllm.engine_state import EngineState
from caesura.scheduler.vllm.engine_state.requests import is_preempted
from caesura.simulator.engine.clients.live import Live
from caesura.simulator.engine.tokens import WORD
from caesura.simulator.machine import StepShape

NOTHING: list[int] = []
"""What a request decodes whose chunk does not reach its end."""


@dataclass(slots=True)
class Work:
    """What a step is made of.

    `sampled` holds the decoded tokens of each request. `first` and `ended` have decoded the first
    and the last token of their segment. `again` of its query tokens had been computed before:
    their query-key pairs are `again_pairs`, and the requests that they belong to fill
    `again_blocks` blocks.
    """

    shape: StepShape
    sampled: list[list[int]]
    first: list[Live]
    ended: list[Live]
    decode_tokens: int
    again: int
    again_pairs: float
    again_blocks: int
    preempted: int

    @property
    def shape_without_again(self) -> StepShape:
        """The step as it would be if nothing had to be computed twice."""
        shape = self.shape
        return StepShape(
            tokens=shape.tokens - self.again,
            sequences=shape.sequences,
            decodes=shape.decodes,
            context=shape.context,
            longest=shape.longest,
            pairs=max(0.0, shape.pairs - self.again_pairs),
        )


@dataclass(slots=True)
class Runner:
    """Executes what a scheduler has scheduled; `live` are the sessions, by their request's id."""

    port: EngineState
    live: dict[str, Live]
    _again: list[tuple[int, float, int]] = field(default_factory=list)

    def execute(self, output: Any) -> Work:
        """Return what the step computes and decodes."""
        preempted = self._preempted(output.preempted_req_ids) if output.preempted_req_ids else 0
        self._admit(self.port.admitted_in(output))
        sessions = self.live
        sampled: list[list[int]] = []
        first: list[Live] = []
        ended: list[Live] = []
        context = longest = decodes = decoded = 0
        pairs = 0.0
        for request_id, count, computed, unfinished in self.port.chunks_of(output):
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
        shape = StepShape(tokens, sequences, decodes, context, longest, pairs)
        again, again_pairs, again_blocks = self._take_again()
        return Work(
            shape, sampled, first, ended, decoded, again, again_pairs, again_blocks, preempted
        )

    def _admit(self, new: list[tuple[str, int]]) -> None:
        """Note what those that join the batch need not compute."""
        for request_id, computed in new:
            live = self.live[request_id]
            if not live.admitted:
                live.admitted = True
                live.result.cached_tokens += computed

    def _preempted(self, request_ids: set[str]) -> int:
        """Note how far those had come that lost their KV; a pause leaves the batch like that too.

        Tokens that were decoded have been computed, all but the last.
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
        """Count tokens that are computed a second time."""
        start = computed - count
        again = min(computed, live.reached) - start
        live.result.recomputed_tokens += again
        blocks = -(-computed // self.port.block_size)
        self._again.append((again, again * (start + (again + 1) / 2), blocks))

    def _take_again(self) -> tuple[int, float, int]:
        if not self._again:
            return 0, 0.0, 0
        rows, self._again = self._again, []
        return sum(row[0] for row in rows), sum(row[1] for row in rows), sum(row[2] for row in rows)
