"""Does less regret mean less latency? Handlings, simulated.

    python -m benchmarks.regret            # runs that are kept already are not repeated
    python -m benchmarks.regret --quick    # one load and one seed: to see that it works

Each handling serves the same sessions on the scheduler that serves, with the same ranking, chunks
and prefix cache. The regret of all pauses, per session, is compared with the mean normalized
latency: Spearman's rank correlation over the handlings at each load. The older measure, which took
all memory as wanted and swaps within the link's budget as free, is computed from the same records.
"""

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from math import inf
from pathlib import Path
from statistics import StatisticsError, correlation, fmean

from rich.progress import track

from benchmarks.evidence.tables import Table, add_option, tell
from benchmarks.kept import KeptRuns
from caesura.scheduler.records import PauseRecord, parse
from caesura.simulator.engine.run import simulate
from caesura.simulator.latency.machines import make_machine
from caesura.simulator.policy import parse_policy
from caesura.simulator.workload.names import make_workload

ROOT = Path(__file__).parents[1]
RUNS = ROOT / ".cache" / "regret"
MACHINE = "gptj-6b-a100-40g"
HANDLINGS = ("preserve", "discard", "swap", "infercept", "lamps", "ttl", "caesura")
LOADS = (("mix", 1.0), ("mix", 2.0), ("mix", 3.0), ("mix:tool=qa", 3.0), ("mix:tool=chatbot", 3.0))
SEEDS = (81, 82, 83)
SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run: regrets and waste in block-seconds per session, latency in seconds per token."""

    handling: str
    workload: str
    rate: float
    seed: int
    latency: float
    regret: float
    older: float
    cost: float
    pauses: int
    free: int
    """Pauses whose memory nobody wanted and of which nothing was recomputed or loaded."""


def older_regret(pause: PauseRecord) -> float:
    """Return the regret as it was: all memory always wanted, alternatives at their first price."""
    held, cost, since = pause.blocks, 0.0, 0.0
    until = (pause.pause_seconds or 0.0) + pause.queue_seconds
    for row in pause.decisions:
        cost += held * (row.seconds - since)
        held, since = max(0, held - row.blocks), row.seconds
    cost += held * max(0.0, until - since)
    discard = _price(pause.prices.discard)
    if pause.recomputed_tokens and pause.blocks:
        cost += discard * min(1.0, pause.recomputed_tokens / max(1, pause.context_tokens))
    preserve = (pause.pause_seconds or 0.0) * pause.blocks
    return max(0.0, cost - min(preserve, discard, _price(pause.prices.swap)))


def _price(price: float | None) -> float:
    return inf if price is None else price


def run(handling: str, workload: str, rate: float, seed: int, seconds: float) -> Outcome:
    """Simulate one handling to the end of all sessions."""
    sessions = make_workload(workload, seed=seed, rate=rate, seconds=seconds)
    policy = parse_policy(f"caesura:handling={handling}")
    done = simulate(sessions, make_machine(MACHINE), policy, records=True)
    pauses = [found for each in done.records if isinstance(found := parse(each), PauseRecord)]
    ended = [one for one in done.sessions if one.ended and one.decode_tokens]
    return Outcome(
        handling,
        workload,
        rate,
        seed,
        latency=fmean(one.normalized_latency for one in ended),
        regret=sum(each.regret or 0.0 for each in pauses) / len(ended),
        older=sum(map(older_regret, pauses)) / len(ended),
        cost=sum(each.cost or 0.0 for each in pauses) / len(ended),
        pauses=len(pauses),
        free=sum(each.regret is None for each in pauses),
    )


MEASURES = ("regret", "older")


def means(outcomes: Iterable[Outcome]) -> dict[tuple[str, float, str], list[float]]:
    """Return the means over seeds of latency and both measures, by load and handling."""
    groups: dict[tuple[str, float, str], list[Outcome]] = {}
    for one in outcomes:
        groups.setdefault((one.workload, one.rate, one.handling), []).append(one)
    return {
        key: [fmean(getattr(one, name) for one in each) for name in ("latency", *MEASURES)]
        for key, each in groups.items()
    }


def rank_correlations(rows: Iterable[Sequence[float]]) -> list[float | None]:
    """Return Spearman's correlation of each measure with the latency; None without an order."""
    latency, *measures = zip(*rows, strict=True)
    found: list[float | None] = []
    for measure in measures:
        try:
            found.append(correlation(_ranks(latency), _ranks(measure)))
        except StatisticsError:
            found.append(None)
    return found


def _ranks(values: Sequence[float]) -> list[float]:
    """Return the place of each value, from 1 on; equal values share the mean of their places."""
    order = sorted(values)
    return [order.index(value) + (order.count(value) + 1) / 2 for value in values]


def table(outcomes: Sequence[Outcome]) -> Table:
    """Return the correlations by load."""
    rows = means(outcomes)
    loads = list(dict.fromkeys((one.workload, one.rate) for one in outcomes))
    found, lines = [], []
    for load in loads:
        runs = [one for one in outcomes if (one.workload, one.rate) == load]
        free = sum(one.free for one in runs) / sum(one.pauses for one in runs)
        found.append(rank_correlations(row for key, row in rows.items() if key[:2] == load))
        lines.append((_load(load), f"{100 * free:.0f} %", *_both(found[-1])))
    sums: list[float | None] = []
    for of_one in zip(*found, strict=True):
        known = [rho for rho in of_one if rho is not None]
        sums.append(fmean(known) if known else None)
    lines.append(("mean of these", "", *_both(sums)))
    lines.append(("all loads together", "", *_both(rank_correlations(rows.values()))))
    return Table.of(("load", "pauses that cost nothing", "regret", "older measure"), lines)


def _both(rhos: Iterable[float | None]) -> list[str]:
    return ["–" if rho is None else f"{rho:.2f}" for rho in rhos]


def _load(load: tuple[str, float]) -> str:
    return f"`{load[0]}`, {load[1]:g}/s"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one load, one seed, 20 s of arrivals")
    parser.add_argument("--runs", type=Path, default=RUNS, help="folder of the kept runs")
    add_option(parser)
    args = parser.parse_args()
    loads, seeds = (LOADS[1:2], SEEDS[:1]) if args.quick else (LOADS, SEEDS)
    seconds = 20.0 if args.quick else SECONDS
    kept = KeptRuns(args.runs, {"seconds": seconds, "machine": MACHINE})
    outcomes: list[Outcome] = []
    for (workload, rate), seed, handling in track(
        list(product(loads, seeds, HANDLINGS)), "simulating"
    ):
        what = {"workload": workload, "rate": rate, "seed": seed, "handling": handling}
        found = kept.find(what)
        if found is None:
            found = asdict(run(handling, workload, rate, seed, seconds))
            kept.keep(what, found)
        outcomes.append(Outcome(**found))
    made = table(outcomes)
    print(made.markdown())
    tell(args.tables, [made])


if __name__ == "__main__":
    main()
