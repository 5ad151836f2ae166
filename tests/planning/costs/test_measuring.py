"""Measuring engines: step times from the times of loads, and a whole measurement over HTTP."""

import asyncio
from pathlib import Path

import pytest
from aiohttp import web

from caesura.intercept.kv.costs import CostModel
from caesura.planning.application.application import Model
from caesura.planning.costs.devices import Kind
from caesura.planning.costs.measured import MeasuredSleep
from caesura.planning.run import measure as measuring
from caesura.planning.run.host import Endpoint, HostError, Replica
from caesura.planning.run.measure import FEW, MANY, Load, Taken, loads, steps_of
from caesura.scheduler.calibration import fit
from caesura.simulator.latency.analytic import A100_80G

TRUE = CostModel(0.004, 0.0001, 0.0001, 2e-7, 1000)
TOKEN_SECONDS = 0.005
"""Of the server below, on its own clock."""
KIND = Kind("test", A100_80G, 0.0)


def taken(load: Load, beside: float) -> Taken:
    """Return what an engine with the times `TRUE` takes: one prefill, then decodes."""
    tokens = load.requests * load.prompt
    seconds = beside + TRUE.step_seconds(tokens, tokens)
    for step in range(1, load.output):
        context = load.requests * (load.prompt + step)
        seconds += TRUE.step_seconds(load.requests, context)
    return Taken(seconds, load.prompt)


@pytest.mark.parametrize("beside", [0.0, 0.02])
def test_step_times_are_found_behind_what_requests_cost_besides(beside: float) -> None:
    wanted = loads(kv_tokens=100_000, longest=2048, most_running=256)
    steps = steps_of({load: [taken(load, beside), taken(load, beside + 1)] for load in wanted})
    found, error = fit(steps)
    assert error < 0.05
    for tokens, context in ((1, 100), (16, 8000), (128, 20_000), (1000, 1000)):
        assert found.step_seconds(tokens, context) == pytest.approx(
            TRUE.step_seconds(tokens, context), rel=0.1
        )


def test_loads_fit_into_the_cache_and_the_context() -> None:
    small = loads(kv_tokens=4000, longest=512, most_running=16)
    assert small
    assert all(load.tokens <= 0.7 * 4000 and load.requests <= 16 for load in small)
    assert all(load.prompt + MANY < 512 for load in small)
    assert {load.output for load in small} == {1, FEW, MANY}


class Server:
    """An engine's HTTP interface without an engine, which counts what it is asked for."""

    def __init__(self, metrics: str) -> None:
        self.metrics = metrics
        self.asked: list[dict[str, object]] = []
        self.now = 0.0

    async def start(self) -> tuple[web.AppRunner, str]:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_get("/metrics", self._show)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        return runner, f"http://127.0.0.1:{port}/v1"

    async def _complete(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.asked.append(body)
        words = len(body["messages"][0]["content"].split())
        self.now += TOKEN_SECONDS * body["max_tokens"]
        return web.json_response({"usage": {"prompt_tokens": 10 + 2 * words}})

    async def _show(self, request: web.Request) -> web.Response:
        return web.Response(text=self.metrics)


class Host:
    """A host of engines that one other server stands for; loading takes a second for each."""

    def __init__(self, server: Server, url: str, devices: int) -> None:
        self.server = server
        self.url = url
        self.devices = devices
        self.log: list[str] = []

    async def place(self, replica: Replica) -> None:
        self.log.append("place")

    async def load(self, replica: Replica) -> Endpoint:
        self.log.append("load")
        await asyncio.sleep(0)
        self.server.now += 1.0
        return Endpoint(self.url, replica.model.name)

    async def evict(self, replica: Replica) -> None:
        self.log.append("evict")


METRICS = 'vllm:cache_config_info{kv_cache_memory_bytes="400000",kv_cache_size_tokens="4000"} 1.0\n'


async def measure(metrics: str, model: Model, devices: int = 1) -> tuple[object, Server, Host]:
    server = Server(metrics)
    runner, url = await server.start()
    host = Host(server, url, devices)
    try:
        found = await measuring.measure_engine(
            host,  # type: ignore[arg-type]
            measuring.WantedEngine(model, 1, temperature=0.8),
            KIND,
            lambda part, what: None,
            clock=lambda: server.now,
        )
    finally:
        await runner.cleanup()
    return found, server, host


async def test_an_engine_is_measured_over_http(tmp_path: Path) -> None:
    model = Model("m", str(tmp_path), ("--max-model-len", "512"))
    found, server, host = await measure(METRICS, model)
    assert isinstance(found, measuring.MeasuredEngine)
    assert (found.kv_tokens, found.kv_bytes, found.device) == (4000, 100, "test")
    assert found.steps.step_seconds(1, 100) == pytest.approx(TOKEN_SECONDS, rel=1.0)
    assert all(each["min_tokens"] == each["max_tokens"] for each in server.asked)
    assert all(each["temperature"] == 0.8 for each in server.asked)
    assert not any("seed" in each for each in server.asked)
    texts = [each["messages"][0]["content"] for each in server.asked]  # type: ignore[index]
    assert len(set(texts)) == len(texts)
    assert host.log == ["place", "load", "evict", "place", "load", "evict"]
    assert found.load_seconds == 1.0


async def test_engines_are_loaded_together_as_in_a_stage(tmp_path: Path) -> None:
    model = Model("m", str(tmp_path), ("--max-model-len", "512"))
    found, _, host = await measure(METRICS, model, devices=2)
    assert isinstance(found, measuring.MeasuredEngine)
    assert found.load_seconds == 1.5
    assert host.log[3:] == ["place", "load", "place", "load", "evict", "evict"]


async def test_an_engine_is_put_to_sleep_while_it_is_loaded(tmp_path: Path) -> None:
    server = Server(METRICS)
    runner, url = await server.start()
    host = Host(server, url, 1)
    slept = (MeasuredSleep(level=1, sleep_seconds=1.0, wake_seconds=2.0),)

    async def sleeps(endpoint: Endpoint, clock: object) -> tuple[MeasuredSleep, ...]:
        assert endpoint.url == url
        host.log.append("sleep")
        return slept

    model = Model("m", str(tmp_path), ("--max-model-len", "512", "--kv-cache-memory-bytes=400000"))
    found = await measuring.measure_engine(
        host,  # type: ignore[arg-type]
        measuring.WantedEngine(model, 1),
        KIND,
        lambda part, what: None,
        clock=lambda: server.now,
        sleeps=sleeps,
    )
    await runner.cleanup()
    assert found.sleeps == slept
    assert host.log[:4] == ["place", "load", "sleep", "evict"]
    assert found.kv_arguments == ("--kv-cache-memory-bytes=400000",)


async def test_an_engine_that_is_too_small_to_measure_is_refused(tmp_path: Path) -> None:
    tiny = METRICS.replace('"4000"', '"100"')
    with pytest.raises(HostError, match=r"m-0 cannot be measured .*larger KV cache"):
        await measure(tiny, Model("m", str(tmp_path), ("--max-model-len", "512")))


async def test_an_engine_that_hides_its_cache_is_refused_and_evicted(tmp_path: Path) -> None:
    server = Server("")
    runner, url = await server.start()
    host = Host(server, url, 1)
    with pytest.raises(HostError, match="does not say how large its KV cache is"):
        await measuring.measure_engine(
            host,  # type: ignore[arg-type]
            measuring.WantedEngine(Model("m", str(tmp_path)), 1),
            KIND,
            lambda part, what: None,
        )
    await runner.cleanup()
    assert host.log == ["place", "load", "evict"]


async def test_loads_that_would_take_long_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "MAX_LOAD_SECONDS", 0.0)
    server = Server(METRICS)
    runner, url = await server.start()
    with pytest.raises(HostError, match="cannot be measured"):
        await measuring.measure_engine(
            Host(server, url, 1),  # type: ignore[arg-type]
            measuring.WantedEngine(Model("m", str(tmp_path), ("--max-model-len", "512")), 1),
            KIND,
            lambda part, what: None,
        )
    await runner.cleanup()
    warming = 2
    assert len(server.asked) == warming + measuring.REPEATS, "only the smallest load is measured"
