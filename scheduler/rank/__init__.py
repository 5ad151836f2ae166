"""The rankings by name: in which order requests that queue are admitted."""

from collections.abc import Callable

from caesura.scheduler.named import make_named
from caesura.scheduler.rank.caesura import Caesura
from caesura.scheduler.rank.fcfs import Fcfs
from caesura.scheduler.rank.lamps import Lamps
from caesura.scheduler.rank.ssjf import Ssjf
from caesura.scheduler.rank.view import Ranking

DEFAULT_RANKING = "fcfs"

RANKINGS: dict[str, Callable[..., Ranking]] = {
    "fcfs": Fcfs,
    "caesura": Caesura,
    "ssjf": Ssjf,
    "lamps": Lamps,
}


def make_ranking(spec: str) -> Ranking:
    """Return the ranking that `spec` names, as `lamps` or `caesura:beta=50`.

    Its keys are the fields of the class, and `package.module.Class` is imported. Raises
    `ValueError` that says what there is (`caesura.scheduler.named`).
    """
    return make_named(spec, RANKINGS, "ranking")
