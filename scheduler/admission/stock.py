"""Admits whoever's blocks are free: vLLM's own admission, which asks that before it asks us."""

from collections.abc import Sequence

from caesura.scheduler.admission.view import Batched, Gate


class Stock:
    """Always open."""

    name = "vllm"

    def begin(self, running: Sequence[Batched], capacity_tokens: int) -> Gate:
        """Return a gate that is open; it is the policy itself, since there is nothing to count."""
        return self

    def admits(self, candidate: Batched) -> bool:
        """Admit."""
        return True

    def observe(self, kind: str, generated_tokens: int) -> None:
        """Nothing to learn."""
