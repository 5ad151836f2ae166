"""Pause and resume in vLLM's own `PipelinedEngine`, with 1, 2 and 4 steps in flight.

The harness puts this beside vLLM's tests and runs it with stock's scheduler and with ours. With
ours it also drops the KV of paused sessions, at once, while stale steps are in flight.
"""

from collections.abc import Iterator

import pytest
from tests.v1.core.test_async_scheduler import (
    PipelinedEngine,
    _assert_positions_consistent,
    _create_async_pp_scheduler,
)
from tests.v1.core.utils import create_requests
from vllm.v1.request import Request, RequestStatus

SESSIONS, PAUSES, TOKENS = 4, 3, 9


def chunk(request: Request, tokens: list[int], more: bool) -> Request:
    """Make the session's next chunk, or its end."""
    (update,) = create_requests(
        num_requests=1, num_tokens=len(tokens), max_tokens=TOKENS, ignore_eos=True
    )
    update.request_id = request.request_id
    update.prompt_token_ids = tokens
    update.resumable = more
    return update


class Clients:
    """Answer every pause as soon as it is seen."""

    def __init__(self, scheduler: object, engine: PipelinedEngine, drop: bool) -> None:
        self.scheduler, self.engine = scheduler, engine
        self.drop = drop and hasattr(scheduler, "parts")
        self.requests = create_requests(
            num_requests=SESSIONS, num_tokens=20, max_tokens=TOKENS, ignore_eos=True
        )
        self.context = {r.request_id: list(r.prompt_token_ids) for r in self.requests}
        self.pauses = dict.fromkeys(self.context, 0)
        for request in self.requests:
            request.resumable = True
            scheduler.add_request(request)

    def paused(self) -> Iterator[Request]:
        for request in self.requests:
            if request.status == RequestStatus.WAITING_FOR_STREAMING_REQ:
                yield request

    def answer(self, step: int, engine: PipelinedEngine) -> None:
        for request in list(self.paused()):
            _assert_positions_consistent(request, engine)
            said = list(request.output_token_ids)
            assert len(said) == TOKENS
            self.pauses[request.request_id] += 1
            turn = self.pauses[request.request_id]
            if self.drop and (turn + int(request.request_id)) % 2:
                manager = self.scheduler.parts.manager
                manager.drop(manager.paused_kvs[request.request_id], 0.0, "reset")
            result = [said[-1], *range(turn, turn + 7)]
            self.context[request.request_id] += said[:-1] + result
            more = turn <= PAUSES
            self.scheduler.add_request(chunk(request, result, more))
            if more:
                assert list(request.all_token_ids) == self.context[request.request_id]


@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize("num_spec", [0, 3])
@pytest.mark.parametrize("in_flight", [1, 2, 4])
def test_pause_and_resume(in_flight: int, num_spec: int, drop: bool) -> None:
    scheduler = _create_async_pp_scheduler(num_spec, pp_size=in_flight, num_blocks=60)
    engine = PipelinedEngine(
        scheduler,
        queue_size=in_flight + 1,
        accept_drafts=lambda step, req_id, n: (step + int(req_id)) % (n + 1),
    )
    clients = Clients(scheduler, engine, drop)
    for _ in range(4 * PAUSES):
        engine.run(before_step=clients.answer)
        clients.answer(0, engine)
        if not scheduler.requests:
            break
    assert set(clients.pauses.values()) == {PAUSES + 1}
    pool = scheduler.kv_cache_manager.block_pool
    assert pool.get_num_free_blocks() == pool.num_gpu_blocks - 1
