"""The admissions by name: how many requests run together."""

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
"""Those that draw samples: a `random.Random` is their first argument."""


def make_admission(spec: str, random: Random) -> Admission:
    """Return the admission of that name, such as `past-future:reserve=0.05,window=1000`.

    `random` is what it draws samples with, if it does. Raises `ValueError` that lists what there
    is.
    """
    known = {
        name: partial(make, random) if name in SAMPLING else make
        for name, make in ADMISSIONS.items()
    }
    return make_named(spec, known, "admission")
