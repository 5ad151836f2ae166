"""Mistakes that are told before an engine starts."""

import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import socket
from threading import Thread

import pytest
from huggingface_hub import constants
from vllm.config import ModelConfig, SchedulerConfig
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory

from caesura.runtime.launch import BUNDLED_MODEL
from caesura.scheduler.engine_options import EngineOptions
from caesura.scheduler.errors import UsageError
from caesura.scheduler.settings import Settings
from caesura.scheduler.vllm.client.launch import (
    check_given,
    check_scheduler,
    chosen_formats,
    for_cpu,
    start,
)
from caesura.scheduler.vllm.client.model_formats import check_files
from caesura.scheduler.vllm.client.options import WHITE_SPACE, parse_engine_args

from .world import connector_config


def test_vllms_own_flags_are_read_as_vllm_serve_does() -> None:
    given = parse_engine_args(["--max-model-len", "4k", "--tensor-parallel-size", "2"])
    assert given == {"max_model_len": 4000, "tensor_parallel_size": 2}
    assert parse_engine_args([]) == {}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--structured-outputs-config", '{"backend": "xgrammar"}'],
        ['--structured-outputs-config={"disable_any_whitespace": false}'],
    ],
)
def test_white_space_in_json_is_the_users_choice(arguments: list[str]) -> None:
    told = parse_engine_args(arguments)[WHITE_SPACE]
    assert not told.disable_any_whitespace
    assert WHITE_SPACE not in parse_engine_args(["--reasoning-parser", "qwen3"])


@pytest.mark.parametrize("arguments", [["--nonsense", "3"], ["--tensor-parallel-size", "many"]])
def test_wrong_flags_are_the_users_mistake(arguments: list[str]) -> None:
    with pytest.raises(UsageError, match="vLLM does not"):
        parse_engine_args(arguments)


def test_a_missing_model_directory() -> None:
    with pytest.raises(UsageError, match="no model directory /nowhere/at/all"):
        start(EngineOptions("/nowhere/at/all"))


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
    """A hub that knows no model, and the paths that it was asked for; its cache is empty."""
    asked: list[str] = []

    class Unknown(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

        def log_message(self, format: str, *args: object) -> None:
            pass

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with ThreadingHTTPServer(("127.0.0.1", 0), Unknown) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        yield asked
        server.shutdown()
        thread.join()


def test_what_a_hub_answers_is_left_to_vllm(hub: list[str]) -> None:
    check_files("nobody/some-model")
    assert "/api/models/nobody/some-model" in hub


def without_a_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{port}")


def test_a_hub_that_cannot_be_reached_is_told_after_one_try(
    hub: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client would try six times for each file, and sleep in between."""
    without_a_hub(monkeypatch)
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    with pytest.raises(UsageError, match=r"cannot be reached.*name the folder of a model"):
        start(EngineOptions("nobody/some-model"))
    assert not slept


def test_a_model_that_was_fetched_before_is_used_without_a_hub(
    hub: list[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    snapshot = tmp_path / "models--nobody--some-model"
    (snapshot / "refs").mkdir(parents=True)
    (snapshot / "refs" / "main").write_text("abc")
    (snapshot / "snapshots" / "abc").mkdir(parents=True)
    (snapshot / "snapshots" / "abc" / "config.json").write_text("{}")
    without_a_hub(monkeypatch)
    check_files("nobody/some-model")
    assert "set HF_HUB_OFFLINE=1" in caplog.text
    caplog.clear()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    check_files("nobody/other-model")
    assert not caplog.text and not hub, "nothing is asked for"


@pytest.mark.parametrize("serves", [True, False])
@pytest.mark.parametrize(
    ("flag", "value", "told"),
    [
        ("--kv-transfer-config", '{"kv_connector": "A", "kv_role": "kv_both"}', "connector"),
        ("--kv-offloading-size", "4", "--host-gib"),
        ("--additional-config", '{"caesura": {"handling": "discard"}}', "options of `caesura"),
        ("--worker-cls", "vllm.v1.worker.cpu_worker.CPUWorker", "seeded request"),
    ],
)
def test_what_would_replace_a_part_of_caesura_is_refused_by_name(
    flag: str, value: str, told: str, serves: bool
) -> None:
    options = EngineOptions(BUNDLED_MODEL, vllm_args=[flag, value], serves=serves)
    with pytest.raises(UsageError, match=rf"{flag} would replace .*{told}"):
        start(options)


def test_another_configuration_than_caesuras_is_no_matter() -> None:
    check_given(parse_engine_args(["--additional-config", '{"a": 1}', "--max-model-len", "100"]))
    with pytest.raises(UsageError, match="--scheduler-cls would replace Caesura's scheduler"):
        check_given(parse_engine_args(["--scheduler-cls", "package.Class"]))


def test_an_unknown_format() -> None:
    with pytest.raises(UsageError, match="choose from: hermes"):
        start(EngineOptions(BUNDLED_MODEL, formats=["xml"]))
    with pytest.raises(UsageError, match="hermes and glm cannot be read together"):
        start(EngineOptions(BUNDLED_MODEL, formats=["hermes", "glm"]))


def test_the_scheduler_is_told_the_formats_that_were_chosen(tmp_path: Path) -> None:
    model = ModelConfig(model=str(BUNDLED_MODEL), enforce_eager=True)
    template = tmp_path / "qwen.jinja"
    template.write_text("<tool_call>\\n<function=a>\\n<parameter=b>")
    assert chosen_formats(model, None, {}) is None
    assert chosen_formats(model, ["glm"], {}) == ("glm",)
    assert chosen_formats(model, None, {"chat_template": str(template)}) == ("qwen3_coder",)
    assert "vllm:step3" in (chosen_formats(model, None, {"tool_call_parser": "step3"}) or ())
    settings = Settings(formats=("qwen3_coder",))
    assert "formats" not in settings.told()
    for wrong in ("glm", ["xml"], 3):
        with pytest.raises(ValueError, match="format"):
            Settings(formats=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["CaesuraScheduler", "CaesuraAsyncScheduler"])
def test_an_engine_that_runs_already_may_have_either_scheduler(name: str) -> None:
    def config(scheduler: str) -> SchedulerConfig:
        return SchedulerConfig.default_factory(scheduler_cls=scheduler)

    check_scheduler(config(f"caesura.scheduler.vllm.{name}"))
    stock = "vllm.v1.core.sched.scheduler.Scheduler"
    with pytest.raises(UsageError, match=f"is {stock}: start it with --scheduler-cls caesura"):
        check_scheduler(config(stock))


def test_what_vllm_refuses() -> None:
    with pytest.raises(UsageError, match="max_model_len"):
        start(EngineOptions(BUNDLED_MODEL), engine_args={"max_model_len": 10**6})
    with pytest.raises(UsageError, match="no_such_field"):
        start(EngineOptions(BUNDLED_MODEL), engine_args={"no_such_field": 1})


def test_sleep_mode_beside_swapping_is_refused() -> None:
    """vLLM 0.33 asks for it when it checks its configuration; the default is to allow it."""
    config = connector_config(host_blocks=1, block_size=16, in_step=True)
    connector = KVConnectorFactory.get_connector_class(config)
    assert not connector.supports_sleep_mode(config)


def test_a_pipeline_on_cpus_keeps_the_warm_up_that_makes_its_inputs() -> None:
    eager = {"enforce_eager": True, "kv_cache_memory_bytes": 1 << 30}
    assert for_cpu(eager) == eager
    piped = for_cpu({**eager, "pipeline_parallel_size": 2})
    assert piped["enforce_eager"] is False and piped["compilation_config"]["backend"] == "eager"
    compiled = {"pipeline_parallel_size": 2}
    assert for_cpu(compiled) == compiled, "vLLM's own way has the warm-up"


def test_rays_executor_on_cpus_is_refused_with_its_reason() -> None:
    with pytest.raises(UsageError, match="no support for Ray's executor; use mp"):
        for_cpu({"distributed_executor_backend": "ray"})
