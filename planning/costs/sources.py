"""Where the costs of an engine come from: a simulated machine, measurements, or a roofline."""

from dataclasses import dataclass, replace

from caesura.planning.application.application import Model
from caesura.planning.costs.devices import CPU, Kind, default_kv_bytes
from caesura.planning.costs.engine import EngineCosts, Flops
from caesura.planning.costs.lengths import samullm_longest
from caesura.planning.costs.measured import (
    CostsError,
    MeasuredCosts,
    MeasuredEngine,
    model_name,
)
from caesura.planning.costs.shapes import (
    DEFAULT_LONGEST,
    UTILIZATION,
    ModelShape,
    kv_size,
    longest_of,
    read_shape,
)
from caesura.simulator.latency.analytic import BYTES, USED, Roofline, roofline
from caesura.simulator.latency.calibrated import Calibrated
from caesura.simulator.latency.machines import make_machine
from caesura.simulator.latency.samullm import SamuLLM, fits
from caesura.simulator.machine import Machine

LOAD_SECONDS = 8.0
LOAD_BYTES = 3e9
"""Seconds of any start and bytes of weights per second, assumed: 12 s for 7B, 17 s for 13B.

SamuLLM's engines took 11 to 47 s (section 5.1), with models of up to 70B.
"""

CPU_LOAD_SECONDS = 45.0
"""Seconds until an engine on cores answers, most of which are imports; assumed.

On a machine of two cores it was 36 to 40 s for one engine, and 44 to 54 s where two load at once.
"""

TERA = 1e12


@dataclass(frozen=True, slots=True)
class Source:
    """An engine's costs, None if its weights do not fit; `assumed`: nothing of them is measured."""

    costs: EngineCosts | None
    assumed: bool = False


def engine_of(
    model: Model,
    degree: int,
    measured: MeasuredCosts,
    kind: Kind,
    sleep_level: int | None = None,
) -> Source:
    """Return the costs of a model's engine at a tensor-parallel size.

    With a `sleep_level` the engine sleeps instead of ending, if the times of that were measured.
    Raises `CostsError` if nothing is known of the model, or if the spec of its machine is wrong.
    """
    found = measured.find(model_name(model.path), kind.name, degree)
    source = _awake(model, degree, found, kind)
    sleep = found.sleep_at(sleep_level) if found is not None else None
    if sleep is None or source.costs is None:
        return source
    costs = replace(
        source.costs, sleep_seconds=sleep.sleep_seconds, wake_seconds=sleep.wake_seconds
    )
    return replace(source, costs=costs)


def _awake(model: Model, degree: int, found: MeasuredEngine | None, kind: Kind) -> Source:
    """Return the costs of an engine that ends when it is evicted."""
    shape = read_shape(model.path)
    spec = model.machines.get(degree)
    if spec is not None:
        return Source(_of_machine(model, degree, spec, shape, found, kind))
    if found is not None:
        return Source(_of_measured(model, found, shape, kind))
    if shape is None:
        raise CostsError(
            f"the costs of model {model.name!r} at tensor_parallel {degree} are unknown: measure"
            f" them with `caesura measure`, or give it `machines = {{ {degree} = SPEC }}` as"
            " `caesura simulate --machine` takes it"
        )
    return Source(_assumed(model, degree, shape, kind), assumed=True)


def _of_machine(
    model: Model,
    degree: int,
    spec: str,
    shape: ModelShape | None,
    found: MeasuredEngine | None,
    kind: Kind,
) -> EngineCosts:
    """Return the costs on a simulated machine; its memory beside the KV cache is the weights'."""
    try:
        machine = make_machine(spec)
    except ValueError as error:
        raise CostsError(f"model {model.name!r}, machines: {error}") from error
    weights = _weights(machine, shape, degree)
    # The longest context is the model's own, if its KV cache holds so many tokens.
    longest = min(longest_of(model.arguments, _longest(machine, shape)), machine.kv_tokens)
    given = kv_size(model.arguments).on_device(machine.kv_bytes, machine.block_tokens)
    return EngineCosts(
        latency=machine.latency,
        room=weights + machine.kv_tokens * machine.kv_bytes,
        weight_bytes=weights,
        kv_bytes=machine.kv_bytes,
        longest=longest,
        flops=_flops(machine, shape, weights * degree),
        load_seconds=found.load_seconds if found else load_seconds(weights, kind),
        stop_seconds=found.stop_seconds if found else 0.0,
        block_tokens=machine.block_tokens,
        kv_given=given,
        kv_fixed=given > 0,
    )


def _of_measured(
    model: Model, found: MeasuredEngine, shape: ModelShape | None, kind: Kind
) -> EngineCosts:
    own = shape.longest if shape else DEFAULT_LONGEST
    longest = longest_of(model.arguments, own)
    weights = found.weight_bytes
    given = kv_size(model.arguments).on_device(found.kv_bytes, found.block_tokens)
    return EngineCosts(
        latency=Calibrated(f"{model.name} as measured", found.steps),
        room=_measured_room(model, found, kind),
        weight_bytes=weights,
        kv_bytes=found.kv_bytes,
        longest=longest if given else min(longest, found.kv_tokens),
        flops=shape.flops if shape else Flops(weights * found.tensor_parallel, 0.0),
        load_seconds=found.load_seconds,
        stop_seconds=found.stop_seconds,
        block_tokens=found.block_tokens,
        kv_given=given or _default_kv(model, found, kind),
        kv_fixed=given > 0,
    )


def _default_kv(model: Model, found: MeasuredEngine, kind: Kind) -> int:
    """Return the bytes of a KV cache that no argument sizes; 0: all that the weights leave."""
    default = default_kv_bytes(model.path, kind)
    sized = kv_size(found.kv_arguments).on_device(found.kv_bytes, found.block_tokens)
    return default if sized else default and found.kv_tokens * found.kv_bytes


def _measured_room(model: Model, found: MeasuredEngine, kind: Kind) -> float:
    """Return the bytes of a device for weights and KV cache, as far as an engine has shown them.

    An engine whose KV cache had a given size shows only that there was room for it.
    """
    taken = found.weight_bytes + found.kv_tokens * found.kv_bytes
    then, now = kv_size(found.kv_arguments), kv_size(model.arguments)
    sized = then.on_device(found.kv_bytes, found.block_tokens)
    if sized or default_kv_bytes(model.path, kind):
        return max(taken, kind.room())
    if now.utilization == then.utilization:
        return taken
    # The engine took its share of the device's memory then, and takes another one now.
    share = (now.utilization or UTILIZATION) / (then.utilization or UTILIZATION)
    return (taken + kind.workspace) * share - kind.workspace


def _assumed(model: Model, degree: int, shape: ModelShape, kind: Kind) -> EngineCosts | None:
    """Return the costs of a roofline; None if the weights do not fit on the devices."""
    weights = shape.weight_bytes / degree
    size, default = kv_size(model.arguments), default_kv_bytes(model.path, kind)
    room = kind.room(USED if default else size.utilization or USED)
    if room <= weights:
        return None
    kv_bytes = max(1, shape.decoder.kv_bytes // degree)
    given = size.on_device(kv_bytes, kind.block_tokens)
    return EngineCosts(
        latency=roofline(f"{model.name} on {kind.name}", shape.decoder, kind.device, degree),
        room=room,
        weight_bytes=weights,
        kv_bytes=kv_bytes,
        longest=longest_of(model.arguments, shape.longest),
        flops=shape.flops,
        load_seconds=load_seconds(weights, kind),
        block_tokens=kind.block_tokens,
        kv_given=given or min(default, int(room - weights)),
        kv_fixed=given > 0,
    )


def load_seconds(weight_bytes: float, kind: Kind) -> float:
    """Return the assumed seconds to load so many bytes of weights on each device."""
    base = CPU_LOAD_SECONDS if CPU in kind.name else LOAD_SECONDS
    return base + weight_bytes / LOAD_BYTES


def _weights(machine: Machine, shape: ModelShape | None, degree: int) -> float:
    """Return the bytes of weights on each device."""
    if shape is not None:
        return shape.weight_bytes / degree
    latency = machine.latency
    if isinstance(latency, Roofline):
        return latency.weight_bytes / latency.devices
    if isinstance(latency, SamuLLM):
        return BYTES * TERA * _per_token(latency) / degree
    return 0.0


def _per_token(latency: SamuLLM) -> float:
    """Return L c of the whole model in 10^12; the authors' logs do not always divide it by tp."""
    model, _ = _fit_of(latency)
    return max(each.per_token for each in fits()[model].values())


def _fit_of(latency: SamuLLM) -> tuple[str, int]:
    """Return the model and the tensor-parallel size of a fit, which its name says."""
    _, model, degree = latency.name.split()
    return model, int(degree.removeprefix("tp"))


def _flops(machine: Machine, shape: ModelShape | None, weights: float) -> Flops:
    """Return the model's FLOPs; two per weight of two bytes if only the weights are known."""
    if shape is not None:
        return shape.flops
    latency = machine.latency
    if isinstance(latency, Roofline):
        return Flops(2 * latency.parameters, 2.0 * latency.layers * latency.hidden)
    if isinstance(latency, SamuLLM):
        _, devices = _fit_of(latency)
        return Flops(2 * TERA * _per_token(latency), latency.per_pair * devices * TERA)
    return Flops(max(1.0, weights), 0.0)


def _longest(machine: Machine, shape: ModelShape | None) -> int:
    if shape is not None:
        return shape.longest
    if isinstance(machine.latency, SamuLLM):
        model, _ = _fit_of(machine.latency)
        return samullm_longest().get(model, DEFAULT_LONGEST)
    return DEFAULT_LONGEST
