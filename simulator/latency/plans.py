"""The named machines: the latency model, memory sizes and link of each."""

from dataclasses import dataclass

from caesura.intercept.kv.costs import CostModel
from caesura.simulator.latency.analytic import Roofline
from caesura.simulator.latency.calibrated import fitted, with_link
from caesura.simulator.latency.models import (
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
    kv_tokens,
    roofline,
)
from caesura.simulator.machine import LatencyModel, Machine

GIGA = 1e9

A100_LINK = 20 * GIGA
"""Bytes per second that copies of scattered blocks are assumed to reach over PCIe 4."""

HOST = 128 * GIGA
"""Bytes on the host for copies, shared by the devices of a machine."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a machine; bytes and the link are those of one device.

    Without a `cost`, `build` fits the cost model that a calibration would find.
    """

    latency: LatencyModel
    kv_tokens: int
    kv_bytes: int
    link_bytes: float
    host_bytes: float
    full_duplex: bool = False
    interference: float = 0.0
    cost: CostModel | None = None

    def build(self, name: str) -> Machine:
        """Return the machine.

        Raises `ValueError` if its KV cache is too small to calibrate with.
        """
        cost = self.cost
        if cost is None:
            steps, _ = fitted(self.latency, self.kv_tokens)
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
)

PLANS = {plan.latency.name: plan for plan in _ALL}
