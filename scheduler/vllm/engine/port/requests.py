"""The state of a vLLM request: its status and its computed tokens."""

from collections.abc import Sequence

from vllm.multimodal.inputs import MultiModalFeatureSpec
from vllm.v1.request import Request, RequestStatus, StreamingUpdate

from caesura.scheduler.vllm.wire import REPLAYED_KEY

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


def repeats_last_token(session: Request, chunk: StreamingUpdate) -> bool:
    """Return whether a chunk repeats the token that its session sampled last, and has others."""
    tokens = chunk.prompt_token_ids
    return tokens is not None and len(tokens) > 1 and tokens[0] == session.all_token_ids[-1]


def may_reuse(request: Request, other: Request) -> bool:
    """Return whether the KV of equal tokens at the begin of two requests is the same.

    As for vLLM's prefix cache, the adapter, the salt, and the pictures and sounds must be the same
    too. Embeddings are not compared.
    """
    if request.skip_reading_prefix_cache or request.prompt_embeds is not None:
        return False
    if other.prompt_embeds is not None or request.cache_salt != other.cache_salt:
        return False
    media = [_place(one) for one in other.mm_features]
    return (
        _adapter(request) == _adapter(other)
        and [_place(one) for one in request.mm_features[: len(media)]] == media
    )


def _adapter(request: Request) -> tuple[str, str] | None:
    lora = request.lora_request
    return (lora.lora_name, lora.lora_path) if lora is not None else None


def _place(feature: MultiModalFeatureSpec) -> tuple[str, int, int]:
    position = feature.mm_position
    return feature.identifier, position.offset, position.length


def replayed_tokens(request: Request) -> Sequence[int]:
    """Return the last tokens of a new request's prompt that belong to its turn already.

    Raises `ValueError` for a number of tokens that the prompt does not have.
    """
    params = request.sampling_params
    count = (params.extra_args or {}).get(REPLAYED_KEY) if params is not None else None
    if count is None:
        return ()
    prompt = request.prompt_token_ids or []
    if type(count) is not int or not 0 <= count <= len(prompt):
        raise ValueError(
            f"{REPLAYED_KEY} must be a number of the prompt's {len(prompt)} tokens, got"
            f" {count!r:.100}"
        )
    return prompt[len(prompt) - count :]
