"""An application of two models, and made-up costs for it."""

from collections.abc import Sequence
from pathlib import Path

from caesura.planning.application.requests import Requests
from caesura.planning.plan import Placement
from caesura.planning.stage_times import StageSimulator
from tests.planning.search.factory import Factory

APPLICATION = """
[application]
name = "two"
[models.small]
path = "org/small"
[models.large]
path = "org/large"
[tasks.answer]
models = ["small", "large"]
prompts = "prompts.txt"
"""


class MadeUpCosts:
    """Models with constant rates, half a GiB and a second to load."""

    def __init__(self, requests: Requests, file: Path | None) -> None:
        self._requests = requests.all

    @property
    def assumed(self) -> Sequence[str]:
        return ("large",)

    def simulators(self, draws: int, seed: int) -> Sequence[StageSimulator]:
        return [Factory(self._requests, {"small": 2.0, "large": 1.0}, loading=1.0)] * draws

    def device_bytes(self, placement: Placement) -> float:
        return 1 << 29

    def load_seconds(self, placement: Placement) -> float:
        return 1.0

    def answer_seconds(self, model: str) -> float | None:
        return None
