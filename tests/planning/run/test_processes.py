"""Engines as processes: bound to devices, with logs, and gone with all that they started."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from caesura.planning.application.application import Model
from caesura.planning.run.client import Client, Question
from caesura.planning.run.host import HostError, Replica
from caesura.planning.run.processes import CpuDevices, GpuDevices, ProcessHost, engine_command
from tests.kit.processes import living
from tests.kit.waiting import until
from tests.planning.run.apart import command


def replica(name: str = "a", *devices: int, kv_bytes: int = 0) -> Replica:
    return Replica(Model(name, f"/models/{name}"), 0, devices or (0,), kv_bytes)


def pids(folder: Path, name: str = "a-0") -> list[int]:
    return [int(pid) for pid in (folder / f"{name}.pids").read_text().split()]


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[ProcessHost]:
    host = ProcessHost(CpuDevices(1), tmp_path / "logs", command=command(tmp_path))
    yield host
    await host.close()


async def test_an_evicted_engine_leaves_no_process(host: ProcessHost, tmp_path: Path) -> None:
    one = replica()
    await host.place(one)
    endpoint = await host.load(one)
    assert endpoint.kv_tokens == 512
    async with Client() as client:
        answer = await client.ask(endpoint, Question([{"role": "user", "content": "hi"}], 5))
    assert answer.text == "<hi>"
    assert await host.alive(one)
    found = pids(tmp_path)
    assert len(living(found)) == 3
    assert await host.drain(one, 5)
    await host.evict(one)
    assert living(found) == []
    assert not await host.alive(one)
    assert (tmp_path / "logs" / "a-0.log").read_text() == "a line of a library\n"


async def test_a_killed_engine_is_not_alive_and_its_children_are_gone(
    host: ProcessHost, tmp_path: Path
) -> None:
    one = replica()
    await host.place(one)
    await host.load(one)
    found = pids(tmp_path)
    os.kill(found[0], signal.SIGKILL)
    await until(lambda: not living(found))
    assert not await host.alive(one)
    await host.evict(one)


async def test_a_failed_start_tells_the_end_of_the_log(tmp_path: Path) -> None:
    host = ProcessHost(CpuDevices(1), tmp_path / "logs", command=command(tmp_path, "fail"))
    one = replica()
    await host.place(one)
    with pytest.raises(HostError, match="a-0 did not start: the weights of the model are missing"):
        await host.load(one)
    await host.close()


async def test_a_kv_cache_that_exceeds_the_plan_is_refused(tmp_path: Path) -> None:
    host = ProcessHost(
        CpuDevices(1),
        tmp_path / "logs",
        command=command(tmp_path),
        environment={"KV_BYTES": "101"},
    )
    one = replica(kv_bytes=100)
    await host.place(one)
    with pytest.raises(HostError, match=r"a KV cache of 101 bytes .* the plan gives it 100"):
        await host.load(one)
    await host.close()


async def test_devices_are_held_by_one_engine_unless_all_have_a_size(host: ProcessHost) -> None:
    await host.place(replica("a"))
    with pytest.raises(HostError, match="b-0 can't be placed on device 0: a-0 holds it"):
        await host.place(replica("b", kv_bytes=5))
    await host.evict(replica("a"))
    await host.place(replica("a", kv_bytes=5))
    await host.place(replica("b", kv_bytes=5))
    with pytest.raises(HostError, match="device 1: this machine has 1"):
        await host.place(replica("c", 1))


async def test_a_cancelled_load_leaves_no_process(tmp_path: Path) -> None:
    slow = [sys.executable, "-c", "import time; time.sleep(600)"]
    host = ProcessHost(CpuDevices(1), tmp_path / "logs", command=lambda one: slow)
    one = replica()
    await host.place(one)
    loading = asyncio.ensure_future(host.load(one))
    # The test's process may have children of other tests.
    others = set(psutil.Process().children(recursive=True))
    children: set[psutil.Process] = set()

    def started() -> bool:
        children.update(set(psutil.Process().children(recursive=True)) - others)
        return any("time.sleep(600)" in " ".join(child.cmdline()[-1:]) for child in children)

    await until(started)
    loading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loading
    await host.evict(one)
    assert living([child.pid for child in children]) == []


HOLD = """
import asyncio, sys
from pathlib import Path
from caesura.planning.run.processes import CpuDevices
from caesura.planning.run.processes import ProcessHost
from tests.planning.run.apart import command
from tests.planning.run.test_processes import replica

async def main():
    folder = Path(sys.argv[1])
    host = ProcessHost(CpuDevices(1), folder / "logs", command=command(folder))
    await host.place(replica())
    await host.load(replica())
    print("loaded", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_no_engine_outlives_a_killed_run(tmp_path: Path) -> None:
    run = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", HOLD, str(tmp_path)), stdout=subprocess.PIPE
    )
    assert run.stdout is not None
    assert await run.stdout.readline() == b"loaded\n"
    found = pids(tmp_path)
    assert len(living(found)) == 3
    run.kill()
    await run.wait()
    await until(lambda: not living(found))


def test_processors_are_divided_among_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    devices = CpuDevices(2)
    assert devices.cpus([1]) == (2, 3)
    assert devices.environment([0, 1]) == {
        "VLLM_CPU_OMP_THREADS_BIND": "0,1|2,3",
        "OMP_NUM_THREADS": "2",
    }
    with pytest.raises(HostError, match="5 devices were asked for"):
        CpuDevices(5)


def test_gpus_are_those_that_cuda_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5,7")
    assert GpuDevices(3).environment([0, 2]) == {"CUDA_VISIBLE_DEVICES": "3,7"}
    with pytest.raises(HostError, match="this machine has 3 GPUs"):
        GpuDevices(4)


def test_the_command_of_an_engine_holds_its_plan() -> None:
    model = Model("a", "/models/a", ("--max-model-len", "512"))
    told = engine_command(Replica(model, 0, (0, 1), 1000))
    text = " ".join(told)
    assert "serve --model /models/a" in text
    assert "--tensor-parallel-size 2 --kv-cache-memory-bytes 1000 --max-model-len 512" in text
    assert "--model" not in engine_command(Replica(Model("b", ""), 0, (0,)))


def test_only_on_gpus_prompts_are_split(monkeypatch: pytest.MonkeyPatch) -> None:
    replica = Replica(Model("a", "/models/a"), 0, (0,))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert "--no-enable-chunked-prefill" not in engine_command(replica)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "--no-enable-chunked-prefill" in engine_command(replica)
