"""The rankings by name; a ranking decides the order in which waiting requests are admitted."""

from collections.abc import Callable

from caesura.scheduler.named import make_named
from caesura.scheduler.rank.caesura import Caesura
from caesura.scheduler.rank.fcfs import Fcfs
from caesura.scheduler.rank.lamps import Lamps
from caesura.scheduler.rank.ssjf import Ssjf
from caesura.scheduler.rank.tie import TailInflated
from caesura.scheduler.rank.view import Ranking

DEFAULT_RANKING = "fcfs"

RANKINGS: dict[str, Callable[..., Ranking]] = {
    "fcfs": Fcfs,
    "caesura": Caesura,
    "ssjf": Ssjf,
    "tie": TailInflated,
    "lamps": Lamps,
}


def make_ranking(spec: str) -> Ranking:
    """Return the ranking of a spec such as `lamps` or `caesura:beta=50`.

    The keys are the fields of the class. A name such as `package.module.Class` is imported. Raises
    `ValueError` that lists the names or the keys (`caesura.scheduler.named`).
    """
    return make_named(spec, RANKINGS, "ranking")
