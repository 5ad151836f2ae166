"""The admission policies by name; they decide how many requests run together."""

from collections.abc import Callable
from functools import partial
from random import Random

from caesura.scheduler.admission.aggressive import Aggressive
from caesura.scheduler.admission.conservative import Conservative
from caesura.scheduler.admission.past_future import PastFuture
from caesura.scheduler.admission.stock import Stock
from caesura.scheduler.admission.view import Admission
from caesura.scheduler.named import make_named

DEFAULT_ADMISSION = "vllm"

ADMISSIONS: dict[str, Callable[..., Admission]] = {
    "vllm": Stock,
    "conservative": Conservative,
    "aggressive": Aggressive,
    "past-future": PastFuture,
}

SAMPLING = ("past-future",)
"""The policies that draw samples; their first argument is a `random.Random`."""


def make_admission(spec: str, random: Random) -> Admission:
    """Return the admission policy of a spec such as `past-future:reserve=0.05,window=1000`.

    Policies that draw samples use `random`. Raises `ValueError` that lists the names or the keys.
    """
    known = {
        name: partial(make, random) if name in SAMPLING else make
        for name, make in ADMISSIONS.items()
    }
    return make_named(spec, known, "admission")
