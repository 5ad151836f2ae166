"""A scheduler while it is measured: everything is swapped, and nothing of it is remembered.

Synthetic traffic would spoil what the scheduler knows of tools' pauses and of sessions, and the
records that somebody reads. So these are set aside for as long as the measurement lasts. Steps may
be as long as vLLM makes them.
"""

from typing import Any

from caesura.intercept.cost import CostModel
from caesura.intercept.handling import make_handling
from caesura.scheduler.vllm.memory import PauseMemory
from caesura.scheduler.vllm.setup import with_link


class Trial:
    """Sets a scheduler up to be measured, and back."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._aside: tuple[Any, Any, Any] | None = None
        self._measured = False

    def begin(self) -> None:
        """Swap every pause, in a scheduler that has nothing else to do; raises `ValueError`."""
        self._demand_rest()
        keeper = self._scheduler._keeper
        if self._aside is None:
            keeper.drop_all(self._scheduler._clock())  # what nobody has come for yet is in the way
            self._aside = (keeper.handling, keeper.memory, keeper.ledger._outbox)
            self._measured = self._scheduler._recompute.measured
        self._scheduler._recompute.measured = False
        self._scheduler._line.lives.learns = False
        keeper.handling = make_handling("swap")
        keeper.memory = PauseMemory(None)
        # Without an outbox no row is begun for a step, so no step may be in flight here.
        keeper.ledger._outbox = None

    def end(self) -> None:
        """Put everything back as it was; raises `ValueError` while requests are running."""
        self._demand_rest()
        if self._aside is not None:
            keeper = self._scheduler._keeper
            keeper.handling, keeper.memory, keeper.ledger._outbox = self._aside
            self._aside = None
            self._scheduler._recompute.measured = self._measured
            self._scheduler._line.lives.learns = True

    def _demand_rest(self) -> None:
        if self._scheduler.requests or self._scheduler._keeper.ledger._in_flight:
            raise ValueError("requests are running: an engine is measured before it serves")


def set_costs(scheduler: Any, cost: CostModel) -> CostModel:
    """Have the scheduler go by another cost model, and correct that from now on; return it."""
    keeper = scheduler._keeper
    cost = with_link(cost, keeper.planner)
    # In place: whoever decides by the costs holds this tracker.
    keeper.costs.restart(cost)
    return cost
