"""How many query tokens a step may take beside requests that decode (InferCept, section 4.2).

Beyond the point at which the device is saturated a step takes longer with every query token, and
all requests that decode wait for it.
"""

from collections.abc import Callable
from dataclasses import dataclass

from caesura.intercept.kv.costs import SMALLEST_CHUNK


@dataclass(frozen=True, slots=True)
class StepTokens:
    """The bound on steps in which requests decode.

    `chunk` is that bound in tokens; `vllm` leaves it to vLLM, `auto` goes by the saturation. If
    that was measured, it fits `saturations` times into a step: at the saturation itself a step
    computes five sixths of the tokens per second that long ones do, and at twice that hardly less.
    If it is a guess, only KV that was discarded is held to it while it is recomputed: a guess that
    is too low would make every prefill slower than vLLM's.
    """

    chunk: int | str = "auto"
    saturations: int = 2

    def limit(
        self,
        most: int,
        saturation: int,
        measured: bool,
        recomputes: Callable[[], bool],
        decoding: Callable[[], int],
    ) -> int:
        """Return how many query tokens the coming step may take: `most` if no request decodes.

        `recomputes` says whether discarded KV is being recomputed, `decoding` how many requests
        decode; each is only asked where it matters.
        """
        chunk = self._chunk_tokens(saturation, measured, recomputes)
        if chunk is None or chunk >= most:
            return most
        decodes = decoding()
        return min(most, max(chunk, decodes + SMALLEST_CHUNK)) if decodes else most

    def _chunk_tokens(
        self, saturation: int, measured: bool, recomputes: Callable[[], bool]
    ) -> int | None:
        if isinstance(self.chunk, int):
            return self.chunk
        if self.chunk == "vllm":
            return None
        if measured:
            return self.saturations * saturation
        return saturation if recomputes() else None
