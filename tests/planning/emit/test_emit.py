"""Files for deployments: what they start, on which devices, and that their formats' rules hold."""

import shlex
from dataclasses import replace
from typing import Any

import pytest
import yaml

from caesura.planning.application.application import Application, Model, Task
from caesura.planning.plan import Makespan, Placement, Plan, Stage
from caesura.planning.show.emit import KINDS, emit
from caesura.planning.show.engines import EmitError, engines_of, names_of
from caesura.planning.show.ray_serve import keyword_arguments

LARGE = Model("Qwen/Qwen3-8B", "Qwen/Qwen3-8B", ("--max-model-len", "4096"))
TINY = Model("tiny", "/data/ti$ny")
SMALL = Model("small", "./small")
APPLICATION = Application("Mixed work", (LARGE, TINY, SMALL), ())
LARGE_ON_TWO = Placement(LARGE.name, 1, 2)
SHARING = (Placement("tiny", 1, 1, 1 << 30, "both"), Placement("small", 1, 1, 2 << 30, "both"))


def plan_of(*stages: tuple[Placement, ...], devices: int = 4) -> Plan:
    return Plan("best", devices, tuple(map(Stage, stages)), Makespan(180, 170, 200))


PLAN = plan_of((LARGE_ON_TWO, Placement("tiny", 2)), (LARGE_ON_TWO, *SHARING))


def read(kind: str, plan: Plan = PLAN) -> dict[str, list[Any]]:
    """Return the documents of the YAML files, by name."""
    files = emit(plan, APPLICATION, kind).items()
    return {name: list(yaml.safe_load_all(text)) for name, text in files if name != "Dockerfile"}


def devices_by_name(plan: Plan) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
    return {each.name: (each.devices, each.stages) for each in engines_of(plan, APPLICATION)}


def test_an_engine_of_two_stages_keeps_its_devices_and_others_get_those_given_back() -> None:
    assert devices_by_name(PLAN) == {
        "qwen-qwen3-8b-0": ((0, 1), (1, 2)),
        "tiny-0": ((2,), (1,)),
        "tiny-1": ((3,), (1,)),
        "tiny-2": ((2,), (2,)),
        "small-0": ((2,), (2,)),
    }


def test_a_model_that_grows_keeps_the_engines_that_it_has() -> None:
    grown = plan_of((Placement("tiny", 1), Placement("small", 1)), (Placement("tiny", 2),))
    assert devices_by_name(grown) == {
        "tiny-0": ((0,), (1, 2)),
        "small-0": ((1,), (1,)),
        "tiny-1": ((1,), (2,)),
    }


def test_a_stage_that_takes_too_many_devices_is_refused() -> None:
    with pytest.raises(EmitError, match=r"stage 1 takes 5 devices, and the plan has 4: plan with"):
        engines_of(plan_of((LARGE_ON_TWO, Placement("tiny", 3))), APPLICATION)


def test_models_whose_plain_names_are_the_same_get_different_ones() -> None:
    both = replace(APPLICATION, models=(Model("a.b", ""), Model("a/b", ""), Model("7", "")))
    assert list(names_of(both).values()) == ["a-b", "a-b-2", "m-7"]


def test_an_unknown_kind_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(EmitError, match="'helm' is no kind of deployment: use one of compose, ray"):
        emit(PLAN, APPLICATION, "helm")


@pytest.mark.parametrize("kind", KINDS)
def test_all_kinds_say_what_the_plan_expects(kind: str) -> None:
    for name, text in emit(PLAN, APPLICATION, kind).items():
        if name != "Dockerfile":
            assert text.startswith("# Plan by the strategy best for 4 devices:\n# 180 s expected")
            assert "knows no stages in time" in text


@pytest.mark.parametrize("kind", KINDS)
def test_all_kinds_say_which_model_needs_a_tool_to_ask_another(kind: str) -> None:
    task = Task("answer", "tiny", "", asks=("small",))
    files = emit(PLAN, replace(APPLICATION, tasks=(task,)), kind)
    for name, text in files.items():
        said = "# tiny asks small as a tool: its server needs a caesura.toml" in text
        assert said == (name != "Dockerfile")


def test_compose_files_keep_the_rules_of_the_compose_specification() -> None:
    compose_spec = pytest.importorskip("compose_spec", reason="needs compose-spec (make dev)")
    files = emit(PLAN, APPLICATION, "compose")
    parsed = compose_spec.PyCompose.from_yaml(files["compose.yaml"])
    parsed.validate()
    assert "ENTRYPOINT" in files["Dockerfile"]


def test_compose_has_a_service_per_engine_with_its_devices_and_profiles() -> None:
    services = read("compose")["compose.yaml"][0]["services"]
    large, tiny = services["qwen-qwen3-8b-0"], services["tiny-2"]
    reserved = large["deploy"]["resources"]["reservations"]["devices"][0]
    assert (large["profiles"], reserved["device_ids"]) == (["stage-1", "stage-2"], ["0", "1"])
    assert "--tensor-parallel-size 2" in shlex.join(large["command"])
    assert tiny["profiles"] == ["stage-2"]
    assert "--kv-cache-memory-bytes 1073741824" in shlex.join(tiny["command"])
    assert "/data/ti$$ny:/models/tiny:ro" in tiny["volumes"]
    ports = [port for each in services.values() for port in each["ports"]]
    assert len(set(ports)) == len(services)


def test_compose_says_which_services_leave_before_the_next_stage() -> None:
    text = emit(PLAN, APPLICATION, "compose")["compose.yaml"]
    assert "docker compose --profile stage-1 stop tiny-0 tiny-1\n" in text


def test_kubernetes_objects_keep_the_rules_of_kubernetes() -> None:
    rules = pytest.importorskip("kubernetes_validate", reason="needs it installed (make dev)")
    files = read("k8s")
    for name in ("stage-1.yaml", "stage-2.yaml"):
        for each in files[name]:
            rules.validate(each, "1.34", strict=True)
    kinds = [(each["kind"], each["metadata"]["name"]) for each in files["stage-1.yaml"]]
    assert kinds == [
        (kind, name) for name in ("qwen-qwen3-8b", "tiny") for kind in ("Deployment", "Service")
    ]


def test_a_kept_model_has_the_same_objects_in_the_next_stage() -> None:
    files = read("k8s")
    assert files["stage-1.yaml"][:2] == files["stage-2.yaml"][:2]


def test_kubernetes_pods_ask_for_the_devices_of_one_engine() -> None:
    large, _, tiny, _ = read("k8s")["stage-1.yaml"]
    for each, replicas, gpus in ((large, 1, 2), (tiny, 2, 1)):
        limits = each["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
        assert (each["spec"]["replicas"], limits) == (replicas, {"nvidia.com/gpu": gpus})


def test_values_of_the_production_stack_run_our_scheduler_with_the_prefix_cache() -> None:
    values = read("k8s")["production-stack-stage-2.yaml"][0]
    engines = values["servingEngineSpec"]["modelSpec"]
    assert [(each["name"], each["requestGPU"]) for each in engines] == [
        ("qwen-qwen3-8b", 2),
        ("tiny", 1),
        ("small", 1),
    ]
    for each in engines:
        assert each["vllmConfig"]["enablePrefixCaching"]
        assert "--scheduler-cls caesura.scheduler.vllm" in shlex.join(
            each["vllmConfig"]["extraArgs"]
        )


def test_ray_serve_gives_each_model_an_application_and_shared_devices_in_parts() -> None:
    large, tiny, small = read("ray-serve")["serve-stage-2.yaml"][0]["applications"]
    assert large == read("ray-serve")["serve-stage-1.yaml"][0]["applications"][0]
    config = large["args"]["llm_configs"][0]
    assert config["engine_kwargs"]["tensor_parallel_size"] == 2
    assert config["engine_kwargs"]["max_model_len"] == 4096
    for each in (tiny, small):
        group = each["args"]["llm_configs"][0]["placement_group_config"]
        assert group["bundle_per_worker"] == {"CPU": 1, "GPU": 0.5}


@pytest.mark.slow
def test_ray_serve_takes_the_configurations_and_vllm_knows_the_arguments() -> None:
    pytest.importorskip("ray.serve.schema", reason="needs ray[serve]")
    llm = pytest.importorskip("ray.serve.llm", reason="needs pyarrow")
    from ray.llm._internal.serve.engines.vllm.vllm_models import VLLMEngineConfig
    from ray.serve.schema import ServeDeploySchema

    for documents in read("ray-serve").values():
        for each in ServeDeploySchema.model_validate(documents[0]).applications:
            [config] = llm.LLMServingArgs.model_validate(each.args).llm_configs
            VLLMEngineConfig.from_llm_config(config)


def test_flags_become_keyword_arguments_of_the_engine() -> None:
    flags = [
        *("--max-model-len", "4096", "--no-enable-prefix-caching", "--enforce-eager"),
        *("--dtype=float32", "--additional-config", '{"a": 1}'),
    ]
    assert keyword_arguments(flags) == {
        "max_model_len": 4096,
        "enable_prefix_caching": False,
        "enforce_eager": True,
        "dtype": "float32",
        "additional_config": {"a": 1},
    }
    with pytest.raises(EmitError, match="'4096' belongs to no flag"):
        keyword_arguments(["4096"])
