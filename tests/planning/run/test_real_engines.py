"""A run on real engines, one of which is killed while it decodes."""

import json
from collections import Counter
from pathlib import Path

import psutil
import pytest

from caesura.planning.application.application import Application, Model, Task
from caesura.planning.application.requests import Requests
from caesura.planning.plan import Makespan, Placement, Plan, Stage
from caesura.planning.run.client import ApplicationQuestions
from caesura.planning.run.conductor import Job, carry_out
from caesura.planning.run.host import Limits
from caesura.planning.run.journal import Journal, events_path
from caesura.planning.run.processes import CpuDevices, ProcessHost
from caesura.planning.stage_times import Progress

KV_BYTES = 64 << 20
ROWS = 12


def no_plan(progress: Progress, devices: int) -> Plan:
    raise AssertionError("the run asked for another plan")


@pytest.mark.slow
@pytest.mark.engine
@pytest.mark.timeout(1500)
async def test_a_real_engine_that_is_killed_loses_and_doubles_no_request(tmp_path: Path) -> None:
    rows = tuple({"text": f"Count from {n}."} for n in range(ROWS))
    application = Application(
        "counting",
        (Model("tiny", ""),),
        (Task("count", "tiny", "{{ text }}", rows, max_tokens=40),),
    )
    requests = Requests(application)
    stage = Stage((Placement("tiny", kv_bytes=KV_BYTES),))
    plan = Plan("test", 1, (stage,), Makespan(1, 1, 1))
    journal = Journal(tmp_path / "out.jsonl", application)
    killed: list[int] = []
    # The test's process may have children of other tests.
    others = set(psutil.Process().children(recursive=True))

    def kill_an_engine(_: object) -> None:
        """Kill vLLM's engine process, below the server, after the first result."""
        if not killed:
            below = set(psutil.Process().children(recursive=True)) - others
            killed.extend(each.pid for each in below if each.name().startswith("VLLM::EngineCor"))
            psutil.Process(killed[0]).kill()

    try:
        journal.watch_results(kill_an_engine)
        job = Job(application, requests.all, ApplicationQuestions(requests), no_plan)
        host = ProcessHost(CpuDevices(1), tmp_path / "logs")
        await carry_out(job, plan, host, journal, Limits(max_in_flight=2))
    finally:
        journal.close()
    assert len(killed) == 1
    keys = Counter(json.loads(line)["key"] for line in (tmp_path / "out.jsonl").open())
    assert keys == Counter(request.key for request in requests.all)
    assert all(result.output and not result.error for result in journal.done.values())
    events = [json.loads(line) for line in events_path(tmp_path / "out.jsonl").open()]
    assert [event["replica"] for event in events if event["event"] == "lost"] == ["tiny-0"]
    loaded = [event for event in events if event["event"] == "loaded"]
    assert [event["replica"] for event in loaded] == ["tiny-0", "tiny-1"]
    assert loaded[0]["kv_tokens"] > ROWS * 40
    left = set(psutil.Process().children(recursive=True)) - others
    assert not [each for each in left if each.is_running()]
