"""What an application's engines cost: where each number comes from, and what is refused."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from caesura.intercept.kv.costs import CostModel
from caesura.planning.application.application import Application, Model, Task
from caesura.planning.application.requests import Requests
from caesura.planning.costs.devices import Kind
from caesura.planning.costs.estimate import make_costs
from caesura.planning.costs.measured import (
    CostsError,
    MeasuredCosts,
    MeasuredEngine,
    MeasuredSleep,
    model_name,
    read_costs,
)
from caesura.planning.plan import Placement
from caesura.planning.stage_times import Progress
from caesura.simulator.latency.analytic import A100_80G

GPU = Kind("a gpu", A100_80G, 2e9)
CONFIG = {
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "intermediate_size": 11008,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
}


def application(*models: Model) -> Requests:
    rows = tuple({"x": f"question {row}"} for row in range(6))
    tasks = tuple(
        Task(model.name, model.name, "{{ x }}", rows=rows, max_tokens=64) for model in models
    )
    return Requests(Application("test", models, tasks, seed=4))


def costs_of(*models: Model, path: Path | None = None, kind: Kind = GPU):
    requests = application(*models)
    return make_costs(requests.application, requests, path=path, kind=kind)


def measured(model: str, **more: object) -> MeasuredEngine:
    given: dict[str, object] = {
        "model": model,
        "device": GPU.name,
        "steps": CostModel(0.01, 0.001, 0.001, 0.0, 64),
        "kv_tokens": 5000,
        "kv_bytes": 100,
        "weight_bytes": 1e6,
        "load_seconds": 7.0,
        "stop_seconds": 1.5,
    }
    return MeasuredEngine(**{**given, **more})  # type: ignore[arg-type]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder


def test_a_named_machine_gives_steps_weights_and_the_longest_context() -> None:
    spec = "samullm:model=vicuna-13b-v1.5,tp=2"
    model = Model("v", "nowhere", tensor_parallel=(2,), machines={2: spec})
    engine = costs_of(model).engine("v", 2)
    assert engine is not None
    assert engine.weight_bytes == pytest.approx(13e9, rel=0.05)
    assert engine.longest == 4096
    assert engine.flops.per_token == pytest.approx(26e9, rel=0.05)
    assert engine.kv_tokens(Placement("v", 1, 2)) == pytest.approx(150241, abs=16)
    assert engine.flops.per_pair == pytest.approx(2 * 40 * 5120, rel=0.02)


def test_a_measured_engine_comes_before_an_assumed_one(directory: Path, tmp_path: Path) -> None:
    path = tmp_path / "engines.json"
    MeasuredCosts().updated([measured(model_name(str(directory)))]).save(path)
    costs = costs_of(Model("m", str(directory)), path=path)
    engine = costs.engine("m", 1)
    assert engine is not None
    assert (engine.load_seconds, engine.stop_seconds, engine.longest) == (7.0, 1.5, 4096)
    assert costs.assumed == ()
    assert costs.device_bytes(Placement("m", kv_bytes=2000)) == 1e6 + 2000
    assert costs.load_seconds(Placement("m")) == 7.0


def test_an_answer_takes_a_prefill_and_a_step_per_token(directory: Path, tmp_path: Path) -> None:
    path = tmp_path / "engines.json"
    MeasuredCosts().updated([measured(model_name(str(directory)))]).save(path)

    def seconds(lengths: str) -> float | None:
        return costs_of(Model("m", str(directory), lengths=lengths), path=path).answer_seconds("m")

    ten, thirty = seconds("tokens:10"), seconds("tokens:30")
    assert ten is not None and thirty is not None
    assert 20 * 0.01 < thirty - ten < 20 * 0.02
    assert seconds("limit") is None


def test_measurements_are_kept_by_model_device_and_degree(tmp_path: Path) -> None:
    path = tmp_path / "engines.json"
    first = [measured("a"), measured("a", tensor_parallel=2), measured("b")]
    MeasuredCosts().updated(first).save(path)
    again = read_costs(path).updated([measured("a", load_seconds=9.0)])
    assert len(again.engines) == 3
    found = again.find("a", GPU.name, 1)
    assert found is not None
    assert found.load_seconds == 9.0
    assert again.find("a", "another gpu", 1) is None


def test_a_shape_alone_gives_assumed_costs(directory: Path) -> None:
    model = Model("m", str(directory), ("--max-model-len", "1000"), tensor_parallel=(1, 2))
    costs = costs_of(model)
    one, two = costs.engine("m", 1), costs.engine("m", 2)
    assert one is not None
    assert two is not None
    assert costs.assumed == ("m",)
    assert one.longest == 1000
    assert one.weight_bytes == pytest.approx(2 * 6.7e9, rel=0.02)
    assert two.weight_bytes == one.weight_bytes / 2
    assert one.kv_bytes == 2 * two.kv_bytes == 32 * 4096 * 4
    assert two.load_seconds < one.load_seconds


def test_a_model_that_fits_nowhere_is_refused(directory: Path) -> None:
    small = Kind("small", replace(A100_80G, memory=8e9), 1e9)
    with pytest.raises(CostsError, match="model 'm' fits on no device"):
        costs_of(Model("m", str(directory)), kind=small)
    larger = costs_of(Model("m", str(directory), tensor_parallel=(1, 4)), kind=small)
    simulator = larger.simulators(1, 0)[0]
    assert not simulator.valid(Placement("m"))
    assert simulator.valid(Placement("m", 1, 4))


def test_unknown_costs_name_the_ways_to_give_them() -> None:
    with pytest.raises(CostsError, match="measure them with `caesura measure`"):
        costs_of(Model("m", "somebody/model"))
    with pytest.raises(CostsError, match="model 'm', machines: unknown machine 'abacus'"):
        costs_of(Model("m", "somebody/model", machines={1: "abacus"}))


def test_a_broken_file_says_where(tmp_path: Path, directory: Path) -> None:
    path = tmp_path / "engines.json"
    path.write_text('{"format": 1, "engines": [{"model": "a"}]}')
    with pytest.raises(CostsError, match=r"engines\.0\.device: Field required"):
        costs_of(Model("m", str(directory)), path=path)
    with pytest.raises(CostsError, match="make the file with"):
        costs_of(Model("m", str(directory)), path=tmp_path / "none.json")


def test_draws_differ_and_repeat_by_seed(directory: Path, tmp_path: Path) -> None:
    lengths = tmp_path / "lengths.json"
    lengths.write_text("[5, 20, 60]")
    costs = costs_of(Model("m", str(directory), lengths=str(lengths)))
    assert costs.draw(1) == costs.draw(1)
    assert len({tuple(costs.draw(1, draw).values()) for draw in range(4)}) > 1
    first, second = costs.simulators(2, 7)
    times = [each.run([Placement("m")], Progress()).seconds for each in (first, second)]
    assert times == [
        each.run([Placement("m")], Progress()).seconds for each in costs.simulators(2, 7)
    ]


def test_engines_sleep_at_a_level_that_was_measured(directory: Path, tmp_path: Path) -> None:
    path = tmp_path / "engines.json"
    sleeps = (MeasuredSleep(level=1, sleep_seconds=0.5, wake_seconds=1.5),)
    MeasuredCosts().updated([measured(model_name(str(directory)), sleeps=sleeps)]).save(path)
    requests = application(Model("m", str(directory)))

    def engine(level: int | None):
        costs = make_costs(requests.application, requests, path=path, kind=GPU, sleep_level=level)
        found = costs.engine("m", 1)
        assert found is not None
        return found

    assert (engine(1).sleep_seconds, engine(1).wake_seconds) == (0.5, 1.5)
    assert engine(1).leave_seconds == 0.5
    for level in (None, 2):
        assert engine(level).wake_seconds is None
        assert engine(level).leave_seconds == 1.5, "it is stopped"
