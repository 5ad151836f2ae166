"""Admits while a sum over the batch stays under a limit."""

from collections.abc import Callable, Sequence

from caesura.scheduler.admission.view import Batched


class Budget:
    """A gate that counts each request with `tokens_of` it, up to `limit_tokens` together.

    Whoever comes while the batch is empty is admitted: it would wait for ever otherwise.
    """

    def __init__(
        self,
        running: Sequence[Batched],
        limit_tokens: float,
        tokens_of: Callable[[Batched], int],
    ) -> None:
        self._empty = not running
        self._left = limit_tokens - sum(map(tokens_of, running))
        self._tokens_of = tokens_of

    def admits(self, candidate: Batched) -> bool:
        """Whether the candidate fits; if so it is counted from here on."""
        tokens = self._tokens_of(candidate)
        if tokens > self._left and not self._empty:
            return False
        self._left -= tokens
        self._empty = False
        return True
