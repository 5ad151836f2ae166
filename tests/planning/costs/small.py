"""Small engines and requests whose times can be computed by hand."""

from collections.abc import Mapping, Sequence

from caesura.planning.application.requests import Request
from caesura.planning.costs.engine import EngineCosts, Flops
from caesura.planning.costs.stages import FastStages
from caesura.simulator.machine import StepShape


class Steady:
    """Every step takes `base` seconds, and each query token `token` seconds more."""

    name = "steady"

    def __init__(self, base: float = 1.0, token: float = 0.0) -> None:
        self.base, self.token = base, token

    def seconds(self, step: StepShape) -> float:
        return self.base + self.token * step.tokens


def engine(base: float = 1.0, token: float = 0.0, **more: object) -> EngineCosts:
    given: dict[str, object] = {
        "latency": Steady(base, token),
        "room": 2000.0,
        "weight_bytes": 400.0,
        "kv_bytes": 1,
        "longest": 200,
        "flops": Flops(10.0, 0.0),
        "load_seconds": 5.0,
        "stop_seconds": 2.0,
        "block_tokens": 1,
    }
    return EngineCosts(**{**given, **more})  # type: ignore[arg-type]


def requests(model: str, count: int, prompt: int = 4, needs: str = "") -> list[Request]:
    """Return `count` requests, each of which needs that of the same row of the model `needs`."""
    return [
        Request(f"{model}/{row}", model, model, prompt, 100, (f"{needs}/{row}",) if needs else ())
        for row in range(count)
    ]


def stages(
    all_requests: Sequence[Request], lengths: Mapping[str, int] | int, **engines: EngineCosts
) -> FastStages:
    """Return a simulator of these models; every length is the same if one is given."""
    keys = [request.key for request in all_requests]
    known = dict.fromkeys(keys, lengths) if isinstance(lengths, int) else lengths
    return FastStages(list(engines), all_requests, known, lambda model, _: engines.get(model))
