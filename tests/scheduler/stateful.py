"""A world whose model has recurrent layers beside attention."""

from collections.abc import Sequence
from typing import Any

from tests.scheduler.world import World, make_scheduler


class StatefulWorld(World):
    """A world whose second KV cache group has states: the tuple of all tokens applied so far.

    A step that computes a request's tokens from some place on reads the state of the block before,
    which must be that of just the tokens before. With states at blocks' ends the runner remembers,
    as vLLM's first one does, in which of a request's blocks its state was last. It forgets that for
    requests that have left only in a step with tokens.
    """

    def __init__(self, depth: int, recurrent: str, **options: Any) -> None:
        scheduler = make_scheduler(recurrent=recurrent, **options)
        super().__init__(scheduler, depth)
        self._aligned = recurrent == "align"
        self._states: dict[int, tuple[int, ...]] = {}
        self._blocks: dict[str, list[int]] = {}
        self._places: dict[str, int] = {}
        self.read = 0
        """How often a request came to the runner with a state."""

    def _run(self, output: Any) -> Any:
        for gone in {*output.finished_req_ids, *(output.preempted_req_ids or ())}:
            self._blocks.pop(gone, None)
            if output.total_num_scheduled_tokens:
                self._places.pop(gone, None)
        for new in output.scheduled_new_reqs:
            self._blocks[new.req_id] = list(new.block_ids[1])
            self.read += new.num_computed_tokens > 0
        cached = output.scheduled_cached_reqs
        for request_id, fresh in zip(cached.req_ids, cached.new_block_ids, strict=True):
            if request_id in cached.resumed_req_ids:
                self._blocks[request_id] = []
                self._places.pop(request_id, None)
            if fresh:
                self._blocks.setdefault(request_id, []).extend(fresh[1])
        return super()._run(output)

    def _compute(self, request_id: str, count: int, drafts: Sequence[int]) -> list[int]:
        view = self._view[request_id]
        start = view["computed"]
        place = self._places.get(request_id, self._place_of(start))
        if start or place >= 0:
            state = self._states.get(self._blocks[request_id][place], ())
            assert state == tuple(view["tokens"][:start]), f"{request_id}: another state"
        sampled = super()._compute(request_id, count, drafts)
        for end in range(start + 1, view["computed"] + 1):  # also those of accepted drafts
            if end == view["computed"] or end % self.block_size == 0:
                block = self._blocks[request_id][self._place_of(end)]
                self._states[block] = tuple(view["tokens"][:end])
        self._places[request_id] = self._place_of(view["computed"])
        return sampled

    def _place_of(self, tokens: int) -> int:
        """Return which of a request's blocks has its state after so many tokens."""
        return (tokens - 1) // self.block_size if self._aligned else min(tokens, 1) - 1
