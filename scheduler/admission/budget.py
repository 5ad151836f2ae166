"""A gate that admits requests while a sum over the batch stays below a limit."""

from collections.abc import Callable, Sequence

from caesura.scheduler.admission.view import Batched


class Budget:
    """Admits requests while the sum of `tokens_of` each stays within `limit_tokens`.

    An empty batch admits any request, which would otherwise wait for ever.
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
        """Return whether the candidate fits; an admitted request counts from then on."""
        tokens = self._tokens_of(candidate)
        if tokens > self._left and not self._empty:
            return False
        self._left -= tokens
        self._empty = False
        return True
