"""A world whose model has recurrent layers beside attention."""

from collections.abc import Sequence
from typing import Any

from tests.scheduler.world import World, make_scheduler


class StatefulWorld(World):
    """A world whose second KV cache group has states: the tuple of all tokens applied so far.

    A step that computes a request's tokens from some place on reads the state of the block before,
    which must be that of just the tokens before.
    """

    def __init__(self, depth: int, recurrent: str, **options: Any) -> None:
        scheduler = make_scheduler(recurrent=recurrent, **options)
        super().__init__(scheduler, depth)
        self._aligned = recurrent == "align"
        self._states: dict[int, tuple[int, ...]] = {}
        self._blocks: dict[str, list[int]] = {}
        self.read = 0
        """How often a request came to the runner with a state."""

    def _run(self, output: Any) -> Any:
        for gone in {*output.finished_req_ids, *(output.preempted_req_ids or ())}:
            self._blocks.pop(gone, None)
        for new in output.scheduled_new_reqs:
            self._blocks[new.req_id] = list(new.block_ids[1])
            self.read += new.num_computed_tokens > 0
        cached = output.scheduled_cached_reqs
        for request_id, fresh in zip(cached.req_ids, cached.new_block_ids, strict=True):
            if request_id in cached.resumed_req_ids:
                self._blocks[request_id] = []
            if fresh:
                self._blocks.setdefault(request_id, []).extend(fresh[1])
        return super()._run(output)

    def _compute(self, request_id: str, count: int, drafts: Sequence[int]) -> list[int]:
        view = self._view[request_id]
        start = view["computed"]
        if start:
            state = self._states.get(self._block_of(request_id, start))
            assert state == tuple(view["tokens"][:start]), f"{request_id}: another state"
        sampled = super()._compute(request_id, count, drafts)
        for end in range(start + 1, view["computed"] + 1):  # also those of accepted drafts
            if end == view["computed"] or end % self.block_size == 0:
                self._states[self._block_of(request_id, end)] = tuple(view["tokens"][:end])
        return sampled

    def _block_of(self, request_id: str, tokens: int) -> int:
        place = (tokens - 1) // self.block_size if self._aligned else 0
        return self._blocks[request_id][place]
