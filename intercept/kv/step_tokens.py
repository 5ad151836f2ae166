"""The limit on query tokens of a step in which requests decode (InferCept, section 4.2).

Beyond saturation of the device, every query token makes a step longer, and all decoding requests
wait for it.
"""

from collections.abc import Callable
from dataclasses import dataclass

from caesura.intercept.kv.costs import SMALLEST_CHUNK


@dataclass(frozen=True, slots=True)
class StepTokens:
    """The limit on query tokens of steps in which requests decode.

    `chunk` is the limit in tokens; `vllm` means vLLM's own limit, and `auto` uses the saturation. A
    measured saturation is multiplied by `saturations`: at saturation, a step computes five sixths
    of the tokens per second of long steps, and at twice saturation nearly as many. A guessed
    saturation limits a step only while discarded KV is recomputed, since a guess that is too low
    would make every prefill slower than vLLM's.

    At low load the cut costs more than it saves. If at most `few_decodes` requests decode, and one
    step can compute all that waits, nothing is cut: each of the few waits once for that step, and
    no first token waits for the steps of others.
    """

    chunk: int | str = "auto"
    saturations: int = 2
    few_decodes: int = 8

    def limit(
        self,
        most: int,
        saturation: int,
        measured: bool,
        recomputes: Callable[[], bool],
        decoding: Callable[[], int],
        waiting: Callable[[], int],
    ) -> int:
        """Return the limit on query tokens of the coming step; `most` if no request decodes.

        `recomputes` returns whether discarded KV is being recomputed, `decoding` the number of
        decoding requests, and `waiting` the tokens to compute for all requests that wait for their
        next token. Each is called only if its answer matters.
        """
        chunk = self._chunk_tokens(saturation, measured, recomputes)
        if chunk is None or chunk >= most:
            return most
        decodes = decoding()
        if not decodes:
            return most
        few = self.chunk == "auto" and measured and decodes <= self.few_decodes
        if few and decodes + waiting() <= most:
            return most
        return min(most, max(chunk, decodes + SMALLEST_CHUNK))

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
