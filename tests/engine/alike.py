"""A scheduler that writes down in which chunks a context was computed, and computes another so.

The kernels of some models round differently for a chunk than for a single token. Their texts are
compared with a run without pauses whose chunks are the same.
"""

import uuid
from collections.abc import Sequence
from typing import Any

from caesura.scheduler.vllm import CaesuraAsyncScheduler, CaesuraScheduler

from .core import Core


class ChunkRecorder(CaesuraScheduler):
    """Our scheduler. `ends` has for each request where the chunks end that its KV came from."""

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
        output = super().schedule(*args, **options)
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


class AsyncChunkRecorder(ChunkRecorder, CaesuraAsyncScheduler):
    """The same, a step ahead of its tokens."""


def say_alike(core: Core, tokens: Sequence[int], count: int, ends: Sequence[int]) -> list[int]:
    """Return what the model says after these tokens if they are computed in these chunks."""
    recorder, name = core.scheduler, f"alike-{uuid.uuid4().hex}"
    assert isinstance(recorder, ChunkRecorder)
    recorder.reset_prefix_cache()
    before = [end for end in ends if end < len(tokens)]
    recorder.wanted = {name: before}
    core.add(name, tokens, count)
    core.run([name])
    recorder.wanted = {}
    computed = [end for end in recorder.ends.pop(name) if end < len(tokens)]
    assert computed == before, "it was computed in other chunks"
    return core.said[name]
