"""Fair shares between tenants, by virtual time over memory-time.

A tenant's virtual time is what its requests have consumed, over its weight. The tenant with the
least goes first, so that a tenant with a thousand requests gets no more than one with ten (VTC,
Sheng et al., OSDI 2024; Justitia, arXiv 2510.17015, has memory-time as the cost). What counts is
not tokens but engine seconds: the share of the KV cache that a request holds, and its share of a
step's query tokens, each times the step's seconds.
"""

from collections.abc import Collection, Iterable, Mapping
from math import isfinite

MAX_TENANTS = 10_000
"""The most accounts that are kept; those of absent tenants are forgotten first."""


class Accounts:
    """The virtual times of tenants, in seconds of the engine."""

    def __init__(
        self, weights: Mapping[str, float] | None = None, max_tenants: int = MAX_TENANTS
    ) -> None:
        """Create it; `weights` are by tenant, and 1 for all others.

        Raises `ValueError` for a weight that is not a finite number above 0.
        """
        self._weights = dict(weights or {})
        for tenant, weight in self._weights.items():
            if isinstance(weight, bool) or not isinstance(weight, int | float):
                raise ValueError(f"the weight of {tenant!r} must be a number, got {weight!r}")
            if not (isfinite(weight) and weight > 0):
                raise ValueError(f"the weight of {tenant!r} must be above 0, got {weight!r}")
        self._max_tenants = max_tenants
        self._consumed: dict[str, float] = {}
        self._present: frozenset[str] = frozenset()

    def __getitem__(self, tenant: str) -> float:
        """Return a tenant's virtual time."""
        return self._consumed.get(tenant, 0.0)

    @property
    def present(self) -> frozenset[str]:
        """Return the tenants that have requests which run or wait."""
        return self._present

    def set_present(self, tenants: Collection[str]) -> None:
        """Set which tenants have requests that run or wait.

        A tenant that was absent is lifted to the least virtual time of those that were present.
        So it saves up nothing while it asks for nothing (VTC, section 4.2).
        """
        now = frozenset(tenants)
        if now == self._present:
            return
        stayed = [self[tenant] for tenant in now & self._present]
        floor = min(stayed, default=max(self._consumed.values(), default=0.0))
        for tenant in now - self._present:
            self._consumed[tenant] = max(self[tenant], floor)
        self._present = now
        if len(self._consumed) > self._max_tenants:
            # An absent tenant is lifted when it comes back, so forgetting it costs it little.
            self._consumed = {tenant: self[tenant] for tenant in now}

    def charge(self, tenant: str, seconds: float) -> None:
        """Add `seconds` of the engine to a tenant's consumption."""
        self._consumed[tenant] = self[tenant] + seconds / self._weight(tenant)

    def begins(self, queue: Iterable[tuple[str, float]]) -> list[float]:
        """Return the virtual time at which each waiting request begins, in the queue's order.

        A waiting request is its tenant and the engine seconds that it is expected to consume. The
        tenant's requests begin one after the other, as in start-time fair queueing.
        """
        begin: dict[str, float] = {}
        found = []
        for tenant, seconds in queue:
            at = begin.get(tenant)
            if at is None:
                at = self[tenant]
            found.append(at)
            begin[tenant] = at + max(0.0, seconds) / self._weight(tenant)
        return found

    def _weight(self, tenant: str) -> float:
        return self._weights.get(tenant, 1.0)
