"""A scheduler that writes down in which chunks a context was computed, and computes another so.

The kernels of some models round differently for a chunk than for a single token. Their texts are
compared with a run without pauses whose chunks are the same. In bfloat16 a result depends on the
requests in the same step, too: a text may leave that of a run alone where two tokens are nearly as
good. So the log probabilities of tokens are compared with those of a run alone.
"""

import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler

from caesura.scheduler.vllm import CaesuraAsyncScheduler, CaesuraScheduler

from .core import Core

ALIKE = {"float32": 1e-4, "bfloat16": 1 / 80}
"""How far the log probabilities of a text's tokens may be from a run alone, on average, by dtype.

Texts in float32 come to 0.000004. In bfloat16 stock vLLM, which pauses nothing, comes to 0.007 with
Qwen3-Next: the logits of the best tokens lie between 4 and 8, where bfloat16 has steps of 1/32.
"""
RIVALS = 20
"""Of so many tokens the log probabilities are asked for: the most that vLLM allows by default."""


class Recorder:
    """A part of a scheduler: `ends` has for each request where the chunks of its KV end."""

    requests: dict[str, Any]
    reset_prefix_cache: Callable[..., bool]
    max_num_scheduled_tokens: int

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.ends: dict[str, list[int]] = {}
        self.starts: dict[str, int] = {}
        """How many of a request's tokens had KV before its first step."""
        self.wanted: dict[str, Sequence[int]] = {}
        """Ends of chunks that a request, alone in the engine, should be computed in."""

    def schedule(self, *args: Any, **options: Any) -> Any:
        usual = self.max_num_scheduled_tokens
        self.max_num_scheduled_tokens = self._next_chunk() or usual
        output = super().schedule(*args, **options)  # type: ignore[misc]
        self.max_num_scheduled_tokens = usual
        for request_id, count in output.num_scheduled_tokens.items():
            end = self.requests[request_id].num_computed_tokens
            self.starts.setdefault(request_id, end - count)
            kept = [one for one in self.ends.get(request_id, ()) if one <= end - count]
            if end > count and kept[-1:] != [end - count]:
                kept.append(end - count)  # what the prefix cache had ends within a chunk
            self.ends[request_id] = [*kept, end]
        return output

    def _next_chunk(self) -> int:
        """Return the length of the next chunk, 0 for any."""
        for request_id, ends in self.wanted.items():
            request = self.requests.get(request_id)
            done = request.num_computed_tokens if request is not None else 0
            return next((end - done for end in ends if end > done), 0)
        return 0


class ChunkRecorder(Recorder, CaesuraScheduler):
    """Our scheduler."""


class AsyncChunkRecorder(Recorder, CaesuraAsyncScheduler):
    """Our scheduler, a step ahead of its tokens."""


class StockChunkRecorder(Recorder, AsyncScheduler):
    """Stock vLLM's, a step ahead of its tokens."""


def say_alike(core: Core, tokens: Sequence[int], count: int, ends: Sequence[int]) -> list[int]:
    """Return what the model says after these tokens if they are computed in these chunks."""
    return core.said[_run_alike(core, tokens, count, ends)]


def apart(
    core: Core,
    tokens: Sequence[int],
    said: Sequence[int],
    scores: Sequence[Mapping[int, float]],
    ends: Sequence[int],
) -> float:
    """Return how far a text's log probabilities are from a run alone, in the same chunks.

    `scores` are those of the tokens that were said. The run alone is given the same tokens before
    each. The result is the mean of the distances, and infinite where the run alone has one of the
    tokens not among the best.
    """
    found: list[float] = []
    while len(found) < len(said):
        done = len(found)
        name = _run_alike(core, [*tokens, *said[:done]], len(said) - done, ends)
        for alone, best in zip(core.said[name], core.scores[name], strict=True):
            token, known = said[len(found)], scores[len(found)]
            found.append(abs(known[token] - best.get(token, -math.inf)))
            if alone != token:
                break
    return fmean(found)


def _run_alike(core: Core, tokens: Sequence[int], count: int, ends: Sequence[int]) -> str:
    """Let the model go on, alone, from tokens computed in these chunks; return the request."""
    recorder, name = core.scheduler, f"alike-{uuid.uuid4().hex}"
    assert isinstance(recorder, Recorder)
    recorder.reset_prefix_cache(reset_connector=core.swaps)
    # vLLM's CPU build computes the prompt of a model with latent attention in one chunk.
    chunks = core.config.scheduler_config.enable_chunked_prefill
    before = [end for end in ends if end < len(tokens)] if chunks else []
    recorder.wanted = {name: before}
    core.add(name, tokens, count, logprobs=RIVALS)
    core.run([name])
    recorder.wanted = {}
    computed = [end for end in recorder.ends.pop(name) if end < len(tokens)]
    assert computed == before, "it was computed in other chunks"
    return name
