"""What vLLM knows of sampled tokens: their log probabilities, and the version of the weights."""

from collections.abc import Sequence
from typing import Any

from vllm.logprobs import FlatLogprobs
from vllm.outputs import CompletionOutput
from vllm.v1.engine.async_llm import AsyncLLM

from caesura.scheduler.session_log import WeightsSpan
from caesura.scheduler.vllm.client.parsing.shown import MIN_LOGPROB

Starts = Sequence[tuple[str, int]]
"""Each version with the first of a request's tokens that it sampled."""


def logprobs_of(made: CompletionOutput) -> list[float] | None:
    """Return the log probability of each token; None if they were not asked for."""
    found: Any = made.logprobs
    if found is None or len(found) != len(made.token_ids):
        return None
    if isinstance(found, FlatLogprobs):
        values = [found.logprobs[at] for at in found.start_indices]  # the sampled one comes first
    else:
        values = [each[token].logprob for each, token in zip(found, made.token_ids, strict=True)]
    return [max(MIN_LOGPROB, float(each)) for each in values]


def spans_between(starts: Starts, first: int, end: int) -> tuple[WeightsSpan, ...]:
    """Return the versions of the tokens from `first` to `end` of a request."""
    ends = (*(at for _, at in starts[1:]), end)
    spans: list[WeightsSpan] = []
    for (name, at), to in zip(starts, ends, strict=False):  # without a start there is only the end
        if (count := min(to, end) - max(at, first)) > 0:
            spans.append(WeightsSpan(name, count))
    return tuple(spans)


class TokenVersions:
    """Tells which version of the weights sampled the tokens of one request.

    The engine's process says it with each step. vLLM's client keeps where a version begins among a
    request's tokens, which holds however late the tokens are read.
    """

    def __init__(self, llm: AsyncLLM, request_id: str) -> None:
        self._llm = llm
        self._request_id = request_id
        self._starts: Starts | None = None
        self._seen = 0

    def of(self, made: CompletionOutput) -> tuple[WeightsSpan, ...]:
        """Return the versions of the next tokens; empty if they are not known."""
        first, self._seen = self._seen, self._seen + len(made.token_ids)
        if self._starts is None:
            self._starts = self._kept()
        if self._starts is None:  # the request has ended, and the output holds all of it
            told = made.weight_versions or ()
            return spans_between([(each.version, each.start) for each in told], first, self._seen)
        return spans_between(self._starts, first, self._seen)

    def _kept(self) -> Starts | None:
        """Return what vLLM's client keeps of the request, which grows; None if it has ended."""
        processor = self._llm.output_processor
        for name in processor.external_req_ids.get(self._request_id, ()):
            if (state := processor.request_states.get(name)) is not None:
                return state.weight_version_starts
        return None
