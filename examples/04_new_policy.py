"""A new policy in 20 lines: rank waiting requests your own way, and see what it is worth.

    python examples/04_new_policy.py

A ranking gives every request that queues a score, and the smallest goes first. It sees numbers
only (`caesura.scheduler.policy.ranking`). Here the requests with the least left to compute go
first, but nobody waits for ever. The scheduler that serves is run with it on a simulated GPU.

To serve with it, in the folder of `my_module.py`:
`caesura serve --ranking my_module.LeastWorkFirst:worth=20`.
"""

from dataclasses import dataclass

from caesura.scheduler.policy.ranking import Queued, QueueView, Score


@dataclass(frozen=True)
class LeastWorkFirst:
    """Least to compute first; a second of waiting counts as `worth` tokens."""

    worth: float = 100.0
    name: str = "least-work-first"
    refresh_steps: int = 0  # a score stands until the request's KV changes
    starvation_steps: int = 0

    def score(self, queued: Queued, view: QueueView) -> Score:
        tokens = queued.missing_tokens + queued.forecast.decode_tokens
        return (tokens + self.worth * queued.queued_at,)


def main() -> None:
    from caesura.simulator.engine import simulate
    from caesura.simulator.latency.machines import make_machine
    from caesura.simulator.policy import parse_policy
    from caesura.simulator.workload.names import make_workload

    machine = make_machine("vicuna-13b-a100-40g")
    workload = make_workload("mix", rate=0.8, seconds=300, seed=0)
    for ranking in ("fcfs", "caesura", f"{__name__}.LeastWorkFirst:worth=50"):
        result = simulate(workload, machine, parse_policy(f"caesura:ranking={ranking}"))
        latencies = [session.latency for session in result.sessions]
        mean = sum(latencies) / len(latencies)
        print(f"{ranking:40} {mean:6.2f} s mean latency of {len(latencies)} sessions")


if __name__ == "__main__":
    main()
