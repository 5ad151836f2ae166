"""Machines by name: their latency model, memory sizes and link, and specs that change them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any

from caesura.intercept.kv.costs import CostModel
from caesura.scheduler.calibration import Calibration
from caesura.simulator.latency.analytic import (
    A100_80G,
    BYTES,
    H100_80G,
    LLAMA_2_7B,
    LLAMA_2_13B,
    LLAMA_2_70B,
    LLAMA_3_1_8B,
    QWEN_3_32B,
    Decoder,
    Device,
    Roofline,
    kv_tokens,
    roofline,
)
from caesura.simulator.latency.calibrated import Calibrated, fitted, with_link
from caesura.simulator.latency.hybrid import (
    GEMMA_3_27B,
    GPT_OSS_120B,
    NEMOTRON_3_NANO_30B,
    QWEN_3_NEXT_80B,
    Hybrid,
    hybrid_roofline,
    kv_memory,
)
from caesura.simulator.latency.samullm import fits, samullm
from caesura.simulator.machine import (
    BLOCK_TOKENS,
    KVLayers,
    LatencyModel,
    Machine,
    block_tokens_of,
)

GIGA = 1e9

A100_LINK = 20 * GIGA
"""Bytes per second that copies of scattered blocks are assumed to reach over PCIe 4."""

HOST = 128 * GIGA
"""Bytes on the host for copies, shared by the devices of a machine."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a machine; bytes and the link are those of one device.

    Without a `cost`, `build` fits the cost model that a calibration would find. `layers` are given
    where there are others than full attention, and `block_tokens` are those of their blocks.
    """

    latency: LatencyModel
    kv_tokens: int
    kv_bytes: int
    link_bytes: float
    host_bytes: float
    full_duplex: bool = False
    interference: float = 0.0
    cost: CostModel | None = None
    layers: tuple[KVLayers, ...] = ()
    block_tokens: int = BLOCK_TOKENS

    def build(self, name: str) -> Machine:
        """Return the machine.

        Raises `ValueError` if its KV cache is too small to calibrate with.
        """
        cost = self.cost
        if cost is None:
            window = max((some.window for some in self.layers), default=0)
            steps, _ = fitted(self.latency, self.kv_tokens, window)
            cost = with_link(steps, self.link_bytes, self.kv_bytes)
        return Machine(
            name=name,
            latency=self.latency,
            kv_tokens=self.kv_tokens,
            kv_bytes=self.kv_bytes,
            host_bytes=int(self.host_bytes),
            link_bytes=self.link_bytes,
            cost=cost,
            full_duplex=self.full_duplex,
            interference=self.interference,
            block_tokens=self.block_tokens,
            layers=self.layers,
        )


def _study(
    name: str, weights: float, layers: int, hidden: int, kv_memory: float, devices: int = 1
) -> Plan:
    """Return an A100 with 40 GB, each device of which holds `kv_memory` bytes of KV."""
    kv_bytes = 2 * BYTES * layers * hidden
    model = Roofline(
        name=name,
        weight_bytes=weights,
        parameters=weights / BYTES,
        layers=layers,
        width=hidden,
        hidden=hidden,
        kv_bytes=kv_bytes,
        bandwidth=1.3e12,
        flops=156e12,
        base=3e-3,
        devices=devices,
    )
    held = int(kv_memory * devices / kv_bytes)
    return Plan(model, held, kv_bytes // devices, A100_LINK, HOST / devices)


def _published(name: str, model: Decoder, device: Device, devices: int = 1, held: int = 0) -> Plan:
    """Return a machine of published shapes; `held` is its KV in tokens (0: what fits)."""
    return Plan(
        latency=roofline(name, model, device, devices),
        kv_tokens=held or kv_tokens(model, device, devices),
        kv_bytes=model.kv_bytes // devices,
        link_bytes=device.link,
        host_bytes=HOST / devices,
    )


def _hybrid(name: str, model: Hybrid, device: Device, devices: int = 1) -> Plan:
    """Return a machine of a model whose layers differ, which share the memory that is left."""
    layers = model.layers(devices)
    kv_bytes = layers[0].count * layers[0].token_bytes
    return Plan(
        latency=hybrid_roofline(name, model, device, devices),
        kv_tokens=int(kv_memory(model, device, devices) // kv_bytes),
        kv_bytes=kv_bytes,
        link_bytes=device.link,
        host_bytes=HOST / devices,
        layers=layers,
        block_tokens=block_tokens_of(layers),
    )


# Communication of the two-device Vicuna is free. The last three hold as many tokens as in
# Past-Future's experiments (`max_total_token_num` of its artifact).
_ALL = (
    _study("gptj-6b-a100-40g", 12.1e9, 28, 4096, 24e9),
    _study("vicuna-13b-a100-40g", 26e9, 40, 5120, 10.6e9),
    _study("vicuna-13b-a100-40g-tp2", 26e9, 40, 5120, 24e9, 2),
    _published("llama-3.1-8b-h100", LLAMA_3_1_8B, H100_80G),
    _published("qwen3-32b-h100", QWEN_3_32B, H100_80G),
    _published("qwen3-32b-h100-tp2", QWEN_3_32B, H100_80G, 2),
    _published("llama-2-7b-a100-80g", LLAMA_2_7B, A100_80G, 1, 120_000),
    _published("llama-2-13b-a100-80g", LLAMA_2_13B, A100_80G, 1, 64_000),
    _published("llama-2-70b-a100-80g-tp4", LLAMA_2_70B, A100_80G, 4, 550_000),
    _hybrid("qwen3-next-80b-h100-tp2", QWEN_3_NEXT_80B, H100_80G, 2),
    _hybrid("gpt-oss-120b-h100", GPT_OSS_120B, H100_80G),
    _hybrid("nemotron-3-nano-30b-h100", NEMOTRON_3_NANO_30B, H100_80G),
    _hybrid("gemma-3-27b-h100", GEMMA_3_27B, H100_80G),
)

PLANS = {plan.latency.name: plan for plan in _ALL}


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
    if name == "calibration":
        plan = _from_calibration(spec, values)
    elif name == "samullm":
        plan = _from_samullm(spec, values)
    else:
        plan = PLANS[name]
    return _changed(spec, plan, values).build(spec)


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


def _from_calibration(spec: str, values: dict[str, str]) -> Plan:
    """Return the machine that was measured, with blocks as large as those of its engine."""
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
    return Plan(
        latency=Calibrated(name, cost),
        kv_tokens=0,
        kv_bytes=calibration.bytes_per_token,
        link_bytes=link,
        host_bytes=0.0,
        cost=cost,
        block_tokens=calibration.block_size,
    )


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
    if "block" in values:
        changes["block_tokens"] = int(_number(spec, values, "block", whole=True))
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
