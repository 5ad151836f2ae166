"""The load of an engine of vLLM's, read from its Prometheus metrics."""

import re

MAX_METRICS_BYTES = 2 * 2**20
"""Limit for an engine's answer at `/metrics`."""

_REQUESTS = re.compile(
    r"^vllm:num_requests_(?:running|waiting)(?:\{(?P<labels>[^}]*)\})? (?P<number>[0-9.eE+]+)$",
    re.MULTILINE,
)
_MODEL = re.compile(r'model_name="([^"]*)"')


def load_in(metrics: str, model: str) -> int | None:
    """Return how many requests the engine runs or queues for a model; None if it does not say.

    If no line names the model, the requests of all models count: a server may answer to several
    names of one model, and label its metrics with the first.
    """
    found = [
        (match["labels"] or "", float(match["number"])) for match in _REQUESTS.finditer(metrics)
    ]
    own = [number for labels, number in found if _MODEL.findall(labels) == [model]]
    numbers = own or [number for _, number in found]
    return round(sum(numbers)) if numbers else None
