"""What a waiting request is expected to consume in its segment, for fair shares."""

from caesura.scheduler.rank.view import Queued, QueueView


def segment_seconds(queued: Queued, view: QueueView) -> float:
    """Return the engine seconds that a segment is expected to consume.

    They are the time to compute what is missing, and the share of the KV cache that the request
    holds while it decodes, times the time that decoding takes.
    """
    decode = queued.forecast.decode_tokens
    held_share = (queued.context_tokens + decode / 2) / max(1, view.capacity_tokens)
    computing = queued.missing_tokens * view.cost.prefill_seconds_per_token
    return computing + decode * view.step_seconds * held_share
