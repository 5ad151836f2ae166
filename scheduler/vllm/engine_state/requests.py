"""The state of a vLLM request: its status and its computed tokens."""

from vllm.v1.request import Request, RequestStatus

READY = (RequestStatus.WAITING, RequestStatus.PREEMPTED)
NOT_ADMITTED = (*READY, RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR)
ENDED_BY_ITSELF = (RequestStatus.FINISHED_STOPPED, RequestStatus.FINISHED_LENGTH_CAPPED)


def computed_tokens(request: Request) -> int:
    """Return how many tokens of the request have their KV in blocks that it holds."""
    return int(request.num_computed_tokens)


def arrival_of(request: Request) -> float:
    """Return when the request came, in seconds of the wall clock."""
    return float(request.arrival_time)


def is_ready(request: Request) -> bool:
    """Return whether the request waits only for its admission."""
    return request.status in READY


def is_not_admitted(request: Request) -> bool:
    """Return whether the request waits for its admission, or for its grammar before that."""
    return request.status in NOT_ADMITTED


def waits_for_tool(request: Request) -> bool:
    """Return whether the request is a session that waits for its next chunk."""
    return bool(request.status == RequestStatus.WAITING_FOR_STREAMING_REQ)


def is_loading(request: Request) -> bool:
    """Return whether a load of KV for the request is in progress, into blocks of vLLM's."""
    return bool(request.status == RequestStatus.WAITING_FOR_REMOTE_KVS)


def is_preempted(request: Request) -> bool:
    """Return whether running requests took the blocks of the request."""
    return bool(request.status == RequestStatus.PREEMPTED)


def has_stopped(request: Request) -> bool:
    """Return whether the request stopped at a token, and not at a limit or by an abort."""
    return bool(request.status == RequestStatus.FINISHED_STOPPED)


def ended_by_itself(request: Request) -> bool:
    """Return whether the request ended at a token or at its limit of tokens."""
    return request.status in ENDED_BY_ITSELF


def outcome_of(request: Request) -> str:
    """Return the finish reason of a request that has ended: `stop`, `length`, `abort`, ..."""
    reason = RequestStatus.get_finished_reason(request.status)
    assert reason is not None, f"{request.request_id} has not ended"
    return reason.name.lower()


def stop(request: Request) -> None:
    """End the request with the token that was appended last."""
    request.status = RequestStatus.FINISHED_STOPPED


def takes_chunks(request: Request) -> bool:
    """Return whether the request began as a session, also if an error has ended its input."""
    return request.streaming_queue is not None


def has_next_chunk(request: Request) -> bool:
    """Return whether a session's next chunk has arrived before its turn ended."""
    return bool(request.streaming_queue)
