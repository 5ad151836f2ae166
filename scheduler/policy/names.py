"""The policies and predictors by the names that users type, and how a spec makes one.

A spec is `name`, or `name:key=value,key=value` with parameters. A name with a dot in it is
imported (`package.module.Class`), so that other packages can add their own.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from random import Random
from typing import Any, TypeVar

from caesura.scheduler.policy.admission import Admission, Aggressive, Conservative, Stock
from caesura.scheduler.policy.caesura import Caesura
from caesura.scheduler.policy.data_parallel import LeastWork
from caesura.scheduler.policy.homes import Bounds, Homes
from caesura.scheduler.policy.lamps import Lamps
from caesura.scheduler.policy.past_future import PastFuture
from caesura.scheduler.policy.ranking import Fcfs, Ranking, Ssjf, TailInflated
from caesura.scheduler.policy.routing import (
    Affinity,
    Hash,
    Least,
    OneQueue,
    PrefixRouter,
    RandomChoice,
    RoundRobin,
    Router,
)
from caesura.scheduler.predict.forecast import Predictor
from caesura.scheduler.predict.hazard import Hazard
from caesura.scheduler.predict.history import History
from caesura.scheduler.predict.tables import PausePredictor

DEFAULT_RANKING = "fcfs"
DEFAULT_ADMISSION = "vllm"
DEFAULT_PREDICTOR = "history"

RANKINGS: dict[str, Callable[..., Ranking]] = {
    "fcfs": Fcfs,
    "caesura": Caesura,
    "ssjf": Ssjf,
    "tie": TailInflated,
    "lamps": Lamps,
}

ADMISSIONS: dict[str, Callable[..., Admission]] = {
    "vllm": Stock,
    "conservative": Conservative,
    "aggressive": Aggressive,
    "past-future": PastFuture,
}

SAMPLING = ("past-future",)
"""The admission policies that draw samples; their first argument is a `random.Random`."""


def _homes(
    factor: float = Bounds.factor,
    slack: int = Bounds.slack,
    prefix_share: float = Bounds.prefix_share,
    max_sessions: int = Bounds.max_sessions,
) -> Homes:
    return Homes(Bounds(factor, slack, prefix_share, max_sessions))


ROUTERS: dict[str, Callable[..., Router]] = {
    "affinity": Affinity,
    "hash": Hash,
    "least": Least,
    "prefix": PrefixRouter,
    "round-robin": RoundRobin,
    "random": RandomChoice,
    "one-queue": OneQueue,
    "front": _homes,
    "data-parallel": LeastWork,
}

ABOUT_ROUTERS = {
    "affinity": "a session begins at the least loaded replica and stays; `slack=4` lets it leave",
    "hash": "every session at the replica that its name hashes to",
    "least": "every request at the replica with the fewest requests",
    "prefix": "the replica that saw most of the prompt's prefix, unless the loads differ too much",
    "round-robin": "replicas in turn, for every request",
    "random": "a replica by chance, for every request",
    "one-queue": "requests wait in one queue for a replica with room, first that of their session",
    "front": "what the front of servers does: a session's server, unless it is overloaded",
    "data-parallel": "what data-parallel engines get: where the least has to be done first",
}
"""A line about each router."""


def make_ranking(spec: str) -> Ranking:
    """Return the ranking of a spec such as `lamps` or `caesura:beta=50`.

    The keys are the fields of the class. Raises `ValueError` that lists the names or the keys.
    """
    return make_named(spec, RANKINGS, "ranking")


def make_admission(spec: str, random: Random) -> Admission:
    """Return the admission policy of a spec such as `past-future:reserve=0.05,window=1000`.

    Policies that draw samples use `random`. Raises `ValueError` that lists the names or the keys.
    """
    known = {
        name: partial(make, random) if name in SAMPLING else make
        for name, make in ADMISSIONS.items()
    }
    return make_named(spec, known, "admission")


def make_router(spec: str) -> Router:
    """Return the router of a spec such as `affinity:slack=4`.

    Raises `ValueError` that lists the names or the keys.
    """
    return make_named(spec, ROUTERS, "router")


def make_predictor(spec: str, pauses: PausePredictor | None = None) -> Predictor:
    """Return the predictor of a spec: `history`, `hazard`, or a class to import.

    `pauses` holds the observed pauses and continues to learn. Raises `ValueError` that says what
    is wrong. Only the simulator can make the `oracle`.
    """

    known: dict[str, Callable[..., Predictor]] = {
        "history": partial(History, pauses),
        "hazard": partial(Hazard, pauses),
        "oracle": _oracle,
    }
    return make_named(spec, known, "prediction")


def _oracle(**_: object) -> Predictor:
    raise ValueError("oracle works only in a simulation, which knows the future; use history")


T = TypeVar("T")

TRUTHS = {"true": True, "yes": True, "false": False, "no": False}
KINDS = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "text",
}
"""The annotations that values are checked against, and their names in errors."""


def make_named(spec: str, known: Mapping[str, Callable[..., T]], what: str) -> T:
    """Return the object that `spec` names, called with the spec's parameters as keywords.

    Values are whole numbers, numbers, truths (`true`, `yes`, `false`, `no`) or text. The
    parameter's annotation decides which; without one of these annotations, the value's look does.
    An imported object is not checked to be a `T`. Raises `ValueError`, which begins with `what`
    and the spec, for an unknown name, a failed import, an unknown parameter, or a wrong value.
    """
    name, colon, rest = spec.partition(":")
    try:
        make = _find(name.strip(), known)
        arguments = _arguments(make, _pairs(rest)) if colon else {}
        return make(**arguments)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{what} {spec!r}: {error}") from error


def _find(name: str, known: Mapping[str, Callable[..., T]]) -> Callable[..., T]:
    if name in known:
        return known[name]
    module, _, attribute = name.rpartition(".")
    if not (module and attribute):
        raise ValueError(
            f"unknown name {name!r}; choose from: {', '.join(known)}, or package.module.Class"
        )
    try:
        found: Callable[..., T] = getattr(import_module(module), attribute)
    except Exception as error:  # an imported module can raise any exception
        raise ValueError(f"cannot import {name}: {error!r}") from error
    if not callable(found):
        raise ValueError(f"{name} is a {type(found).__name__} and cannot be called: name a class")
    return found


def _pairs(text: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for item in text.split(","):
        key, _, value = (part.strip() for part in item.partition("="))
        if not (key and value):
            raise ValueError(f"a parameter must be key=value, got {item!r}")
        if key in pairs:
            raise ValueError(f"parameter {key} is given twice: remove one")
        pairs[key] = value
    return pairs


def _arguments(make: Callable[..., Any], pairs: Mapping[str, str]) -> dict[str, Any]:
    arguments, keywords, open_ended = {}, {}, False
    for one in inspect.signature(make).parameters.values():
        open_ended = open_ended or one.kind is one.VAR_KEYWORD
        if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY):
            keywords[one.name] = one.annotation
    for key, text in pairs.items():
        if key not in keywords and not open_ended:
            there = f"choose from: {', '.join(keywords)}" if keywords else "it takes none"
            raise ValueError(f"unknown parameter {key!r}; {there}")
        arguments[key] = _value(key, text, keywords.get(key))
    return arguments


def _value(key: str, text: str, annotation: Any) -> bool | int | float | str:
    # An annotation is a class, or its name in modules that postpone the evaluation of annotations.
    kind = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    if kind == "str":
        return text
    value = plain(text)
    if kind == "float" and type(value) is int:
        return float(value)
    if kind in KINDS and type(value).__name__ != kind:
        raise ValueError(f"{key} must be {KINDS[kind]}, got {text!r}")
    return value


def plain(text: str) -> bool | int | float | str:
    """Return the truth value, the number or the text that `text` looks like."""
    if text.lower() in TRUTHS:
        return TRUTHS[text.lower()]
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text
