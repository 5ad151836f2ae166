"""vLLM's own admission: a request is admitted if its blocks are free, which vLLM checks itself."""

from collections.abc import Sequence

from caesura.scheduler.admission.view import Batched, Gate


class Stock:
    """Admits every request."""

    name = "vllm"

    def begin(self, running: Sequence[Batched], capacity_tokens: int) -> Gate:
        """Return the policy itself, which is its own gate since it counts nothing."""
        return self

    def admits(self, candidate: Batched) -> bool:
        """Return True."""
        return True

    def observe(self, kind: str, generated_tokens: int) -> None:
        """Do nothing: this policy does not learn."""
