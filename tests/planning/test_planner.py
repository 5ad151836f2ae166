"""A planner makes the same plan from the same seed, and plans again for what is left."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from caesura.planning.application.application import Application, Model, Task
from caesura.planning.application.requests import Requests
from caesura.planning.costs.estimate import make_costs
from caesura.planning.plan import Placement, Stage
from caesura.planning.search.follow import first_turn
from caesura.planning.search.planner import Planner
from caesura.planning.search.strategies import SearchOptions
from caesura.planning.stage_times import Progress, StageSimulator
from caesura.runtime.launch import BUNDLED_MODEL
from tests.planning.search.factory import Factory

ROWS = tuple({"prompt": str(number)} for number in range(8))
APPLICATION = Application(
    "test",
    (Model("small", "org/small"), Model("large", "org/large")),
    (Task("a", "small", "{{ prompt }}", ROWS), Task("b", "large", "{{ prompt }}", ROWS[:2])),
    seed=7,
)


@dataclass
class FactoryCosts:
    """Costs in a world of constant rates; draws are alike."""

    requests: Requests
    asked: tuple[int, int] = (0, 0)

    @property
    def assumed(self) -> Sequence[str]:
        return ("large",)

    def simulators(self, draws: int, seed: int) -> Sequence[StageSimulator]:
        self.asked = draws, seed
        return [Factory(self.requests.all, {"small": 2.0, "large": 1.0}, loading=1.0)] * draws

    def device_bytes(self, placement: Placement) -> float:
        return 1 << 30

    def load_seconds(self, placement: Placement) -> float:
        return 1.0

    def answer_seconds(self, model: str) -> float | None:
        return None


def test_a_plan_is_made_with_the_seed_of_the_application() -> None:
    requests = Requests(APPLICATION)
    costs = FactoryCosts(requests)
    found = Planner(requests, costs, draws=3).plan(2)
    assert costs.asked == (3, 7)
    assert {one.model for one in found.plan.stages[0].placements} == {"small", "large"}
    assert found.plan == Planner(requests, costs, draws=3).plan(2).plan


def test_finished_models_are_left_out_of_a_new_plan() -> None:
    requests = Requests(APPLICATION)
    planner = Planner(requests, FactoryCosts(requests))
    done = {request.key: 5.0 for request in requests.all if request.model == "small"}
    plan = planner.replan(Progress(5.0, done), 1)
    assert {one.model for stage in plan.stages for one in stage.placements} == {"large"}
    assert plan.devices == 1


def test_a_model_and_the_one_that_it_asks_run_together() -> None:
    models = tuple(
        Model(name, BUNDLED_MODEL, lengths="tokens:20") for name in ("agent", "expert", "other")
    )
    tasks = (
        Task("solve", "agent", "{{ prompt }}", ROWS, asks=("expert",)),
        Task("read", "other", "{{ prompt }}", ROWS),
    )
    requests = Requests(Application("asking", models, tasks))
    costs = make_costs(requests.application, requests)
    for strategy in ("best", "greedy", "max", "min"):
        plan = Planner(requests, costs, draws=1).plan(2, options=SearchOptions(strategy)).plan
        placed = [{one.model for one in stage.placements} for stage in plan.stages]
        assert all(("agent" in stage) <= ("expert" in stage) for stage in placed), strategy
        assert set().union(*placed) == {"agent", "expert", "other"}
        assert all(stage.devices <= 2 for stage in plan.stages)


def test_a_plan_is_changed_only_for_a_better_one() -> None:
    requests = Requests(APPLICATION)
    planner = Planner(requests, FactoryCosts(requests))
    good = planner.plan(2).plan
    left = ("small", "large")
    assert planner.better(good, first_turn(good, left), Progress()) is None
    one_by_one = replace(good, stages=(Stage((Placement("small"),)), Stage((Placement("large"),))))
    found = planner.better(one_by_one, first_turn(one_by_one, left), Progress())
    assert found is not None
    assert found.makespan.mean <= good.makespan.mean
