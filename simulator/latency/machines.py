"""Machines by name, and from a spec that changes some of their values."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any

from caesura.scheduler.calibration import Calibration
from caesura.simulator.latency.calibrated import Calibrated, with_link
from caesura.simulator.latency.plans import A100_LINK, GIGA, HOST, PLANS, Plan
from caesura.simulator.latency.samullm import fits, samullm
from caesura.simulator.machine import BLOCK_TOKENS, Machine

CHANGES = ("link", "host", "kv", "interference", "duplex", "block")
"""The keys that any machine takes: GB/s, GB, tokens, a share, `half` or `full`, tokens."""

SOURCES = {"calibration": ("path",), "samullm": ("model", "tp")}
"""The sources of machines that need keys of their own."""


class _Machines(Mapping[str, Machine]):
    """The named machines; each is built at its first use, since fitting its cost takes time."""

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
    """Return the machine of `name` or `name:key=value,key=value`; the spec becomes its name.

    The name is one of `MACHINES`. The keys are `link` (GB/s of a device), `host` (GB of a device's
    share), `kv` (tokens), `interference` (a share), `duplex` (`half` or `full`) and `block` (tokens
    of a block of KV cache). `calibration:path=...,kv=...,host=...` is a machine with the costs of a
    calibration file, and with its link and blocks unless these are given.
    `samullm:model=...,tp=...` is an A100-80G machine with the times of SamuLLM's iterations. Raises
    `ValueError` that lists the choices, and its subclass `CalibrationError` for a calibration that
    cannot be read.
    """
    name, _, rest = spec.partition(":")
    if name not in PLANS and name not in SOURCES:
        raise ValueError(f"unknown machine {name!r}; choose from: {', '.join([*PLANS, *SOURCES])}")
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
            raise ValueError(
                f"machine {spec!r}: {change!r} must be key=value with one of {'=, '.join(known)}="
            )
        values[key] = value
    return values


def _from_calibration(spec: str, values: dict[str, str]) -> tuple[Plan, int]:
    """Return the machine that was measured, and the tokens of a block of its engine."""
    missing = [key for key in ("path", "kv", "host") if key not in values]
    if missing:
        raise ValueError(f"machine {spec!r}: a calibration also needs {'=, '.join(missing)}=")
    calibration = Calibration.load(Path(values["path"]).expanduser())
    cost = calibration.cost
    # A simulated link has one rate; the slower direction counts, as in `link_tokens`.
    link = min(cost.out_rate, cost.in_rate) * calibration.bytes_per_token
    if not link and "link" not in values:
        raise ValueError(f"machine {spec!r}: the calibration has no link; give link= in GB/s")
    name = f"{calibration.model} on {calibration.device}, as calibrated"
    plan = Plan(Calibrated(name, cost), 0, calibration.bytes_per_token, link, 0.0, cost=cost)
    return plan, calibration.block_size


def _from_samullm(spec: str, values: dict[str, str]) -> Plan:
    if "model" not in values:
        raise ValueError(f"machine {spec!r}: samullm needs model=, one of {', '.join(fits())}")
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
            raise ValueError(
                f"machine {spec!r}: link must be above 0, got 0; for no link give host=0"
            )
        if plan.cost is not None:
            changes["cost"] = with_link(plan.cost, link, plan.kv_bytes)
    if "interference" in values:
        changes["interference"] = _number(spec, values, "interference")
    if "duplex" in values:
        if values["duplex"] not in ("half", "full"):
            raise ValueError(
                f"machine {spec!r}: duplex must be half or full, got {values['duplex']!r}"
            )
        changes["full_duplex"] = values["duplex"] == "full"
    return replace(plan, **changes)


def _number(spec: str, values: dict[str, str], key: str, whole: bool = False) -> float:
    """Return a value >= 0, or a whole one >= 1 if `whole`; raises `ValueError` for any other."""
    text = values[key]
    try:
        value = float(int(text) if whole else float(text))
    except ValueError:
        value = -1.0
    if not isfinite(value) or value < whole:
        wanted = "a whole number >= 1" if whole else "a finite number >= 0"
        raise ValueError(f"machine {spec!r}: {key} must be {wanted}, got {text!r}")
    return value
