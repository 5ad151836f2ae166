"""Prints the metrics of an engine with our connector, as a process of its own.

vLLM registers its metrics for the whole process, and takes those of other engines away first.
"""

from typing import Any

from prometheus_client import generate_latest
from vllm.v1.metrics.loggers import PrometheusStatLogger
from vllm.v1.metrics.stats import IterationStats, SchedulerStats

from tests.scheduler.steering import CALL, until_paused
from tests.scheduler.world import World, make_scheduler


def records() -> list[dict[str, Any]]:
    """What a scheduler writes down while a request pauses and resumes."""
    world = World(make_scheduler(host_blocks=100))
    session = world.session("a", range(100), CALL, "42 and more]", "done")
    until_paused(world, session)
    for _ in range(9):
        world.step()
    world.answer(session)
    world.run()
    while world.scheduler.has_requests():
        world.step()
        world.drain()
    return world.records


if __name__ == "__main__":
    seen = records()
    logger = PrometheusStatLogger(make_scheduler(host_blocks=100).vllm_config)
    stats = SchedulerStats(kv_connector_stats={"records": seen})
    logger.record(stats, IterationStats())
    print(generate_latest().decode())
