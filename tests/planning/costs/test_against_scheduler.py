"""The fast simulator beside the scheduler that serves, on the same requests."""

import numpy as np
import pytest

from caesura.planning.application.requests import Request
from caesura.planning.costs.engine import EngineCosts, Flops
from caesura.planning.costs.lengths import draw_lengths, make_lengths
from caesura.planning.costs.simulation.stages import FastStages
from caesura.planning.plan import Placement
from caesura.planning.stage_times import Progress
from caesura.simulator.latency.machines import make_machine
from caesura.simulator.policy import Policy
from caesura.simulator.session import Segment, Session, Workload
from caesura.simulator.study.work import simulate_workload

MODEL = "vicuna-13b-v1.5"


@pytest.mark.parametrize(
    ("count", "prompt", "kv", "within"),
    [(150, 40, 55_000, 0.002), (80, 900, 55_000, 0.01), (120, 60, 8_000, 0.01)],
)
def test_a_stage_takes_the_time_of_the_real_scheduler(
    count: int, prompt: int, kv: int, within: float
) -> None:
    machine = make_machine(f"samullm:model={MODEL},tp=1,kv={kv}")
    generator = np.random.default_rng(3)
    requests = [
        Request(f"a/{i}", "a", MODEL, int(generator.integers(1, 2 * prompt)), 256)
        for i in range(count)
    ]
    source = {MODEL: make_lengths(f"samullm:{MODEL}")}
    lengths = draw_lengths(requests, source, {MODEL: 4096}, generator)
    room = machine.kv_tokens * machine.kv_bytes
    engine = EngineCosts(machine.latency, room, 0, machine.kv_bytes, 4096, Flops(1.0, 0.0))
    fast = FastStages([MODEL], requests, lengths, lambda *_: engine).run(
        [Placement(MODEL)], Progress()
    )
    sessions = tuple(
        Session(each.key, "plain", 0.0, (Segment(each.prompt_tokens, lengths[each.key]),))
        for each in requests
    )
    policy = Policy("stock", "stock", host=False, prefix_caching=False)
    real = simulate_workload(Workload("stage", sessions), machine, policy)
    ends = {session.key: session.ended for session in real.sessions}
    assert fast.seconds == pytest.approx(max(ends.values()), rel=within)
    mean = np.mean([abs(fast.after.finished[key] - end) for key, end in ends.items()])
    assert mean < within * np.mean(list(ends.values()))
