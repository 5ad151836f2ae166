"""Machines by name, and from a text that says which one is meant and what differs."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any

from caesura.scheduler.calibration import Calibration
from caesura.simulator.latency.calibrated import Calibrated, with_link
from caesura.simulator.latency.plans import A100_LINK, GIGA, HOST, PLANS, Plan
from caesura.simulator.latency.samullm import samullm
from caesura.simulator.machine import BLOCK_TOKENS, Machine

CHANGES = ("link", "host", "kv", "interference", "duplex", "block")
"""What may be said of any machine: GB/s, GB, tokens, a share, `half` or `full`, tokens."""

SOURCES = {"calibration": ("path",), "samullm": ("model", "tp")}
"""What is a machine only with more words, and which."""


class _Machines(Mapping[str, Machine]):
    """The named machines, each made when it is first asked for, since its cost is fitted then."""

    def __getitem__(self, name: str) -> Machine:
        return _named(name)

    def __iter__(self) -> Iterator[str]:
        return iter(PLANS)

    def __len__(self) -> int:
        return len(PLANS)


@cache
def _named(name: str) -> Machine:
    return PLANS[name].build(name)


MACHINES: Mapping[str, Machine] = _Machines()


def make_machine(spec: str) -> Machine:
    """Read `name`, or `name:key=value,key=value`; the machine is named as the text.

    The name is one of `MACHINES`. `link` (GB/s, of a device), `host` (GB, a device's share), `kv`
    (tokens), `interference` (a share), `duplex` (`half` or `full`) and `block` (tokens of a block
    of KV cache) may differ. `calibration:path=...,kv=...,host=...` is a machine that costs what a
    calibration file says; its link and its blocks are the file's, unless they are given.
    `samullm:model=...,tp=...` is an A100-80G machine that costs what SamuLLM's timed iterations
    say. Raises `ValueError` that says what there is, and `CalibrationError`, which is one, for a
    calibration that cannot be read.
    """
    name, _, rest = spec.partition(":")
    if name not in PLANS and name not in SOURCES:
        raise ValueError(f"no machine {name!r}; there are {', '.join([*PLANS, *SOURCES])}")
    values = _values(spec, rest, (*SOURCES.get(name, ()), *CHANGES))
    if name in PLANS and not values:
        return MACHINES[name]
    block = BLOCK_TOKENS
    if name == "calibration":
        plan, block = _from_calibration(spec, values)
    elif name == "samullm":
        plan = _from_samullm(spec, values)
    else:
        plan = PLANS[name]
    if "block" in values:
        block = int(_number(spec, values, "block", whole=True))
    return replace(_changed(spec, plan, values).build(spec), block_tokens=block)


def _values(spec: str, text: str, known: tuple[str, ...]) -> dict[str, str]:
    values: dict[str, str] = {}
    for change in filter(None, text.split(",")):
        key, equals, value = change.partition("=")
        if not equals or key not in known:
            raise ValueError(f"machine {spec!r}: {change!r} is not one of {'=, '.join(known)}=")
        values[key] = value
    return values


def _from_calibration(spec: str, values: dict[str, str]) -> tuple[Plan, int]:
    """Return the machine that was measured, and the tokens of a block of its engine."""
    missing = [key for key in ("path", "kv", "host") if key not in values]
    if missing:
        raise ValueError(f"machine {spec!r}: a calibration needs {', '.join(missing)} as well")
    calibration = Calibration.load(Path(values["path"]).expanduser())
    cost = calibration.cost
    # One link has one rate here; the slower way is the one to rely on, as in `link_tokens`.
    link = min(cost.out_rate, cost.in_rate) * calibration.bytes_per_token
    if not link and "link" not in values:
        raise ValueError(f"machine {spec!r}: the calibration has no link; give link=")
    name = f"{calibration.model} on {calibration.device}, as calibrated"
    plan = Plan(Calibrated(name, cost), 0, calibration.bytes_per_token, link, 0.0, cost=cost)
    return plan, calibration.block_size


def _from_samullm(spec: str, values: dict[str, str]) -> Plan:
    if "model" not in values:
        raise ValueError(f"machine {spec!r}: samullm needs model= as well")
    degree = _number(spec, values, "tp", whole=True) if "tp" in values else 1
    model = samullm(values["model"], int(degree))
    return Plan(model, model.kv_tokens, model.kv_bytes, A100_LINK, HOST / degree)


def _changed(spec: str, plan: Plan, values: dict[str, str]) -> Plan:
    changes: dict[str, Any] = {}
    if "kv" in values:
        changes["kv_tokens"] = int(_number(spec, values, "kv", whole=True))
    if "host" in values:
        changes["host_bytes"] = _number(spec, values, "host") * GIGA
    if "link" in values:
        link = changes["link_bytes"] = _number(spec, values, "link") * GIGA
        if not link:
            raise ValueError(f"machine {spec!r}: link=0 is no link; host=0 does without one")
        if plan.cost is not None:
            changes["cost"] = with_link(plan.cost, link, plan.kv_bytes)
    if "interference" in values:
        changes["interference"] = _number(spec, values, "interference")
    if "duplex" in values:
        if values["duplex"] not in ("half", "full"):
            raise ValueError(f"machine {spec!r}: duplex is half or full")
        changes["full_duplex"] = values["duplex"] == "full"
    return replace(plan, **changes)


def _number(spec: str, values: dict[str, str], key: str, whole: bool = False) -> float:
    """Return a value; raises `ValueError` unless it is a number, and from 1 if `whole`."""
    text = values[key]
    try:
        value = float(int(text) if whole else float(text))
    except ValueError:
        value = -1.0
    if not isfinite(value) or value < whole:
        wanted = "a whole number from 1" if whole else "a number from 0"
        raise ValueError(f"machine {spec!r}: {key}={text} is not {wanted}")
    return value
