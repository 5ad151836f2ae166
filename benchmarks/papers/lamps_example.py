"""The worked example of the LAMPS paper (Table 1, Fig. 3), scheduled by the rankings in use here.

    python -m benchmarks.papers.lamps_example

One request runs at a time, in a memory of 6 tokens; all three arrive at 0. In a unit of time a
request decodes a token or recomputes one; a swap takes no time. In every unit the best-ranked
request runs whose part, up to its call or its end, fits beside what the others hold at that moment.
Equal ranks go by number.

The handlings are Table 1's. No costs give them by the equations: discarding R2 where a token is
recomputed in a unit asks for a slower link than swapping R3. C_other, which the paper profiles
beforehand, is taken to be all of the memory; anything from 2 to 21 gives the same schedule.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from benchmarks.evidence.tables import Table, add_option, tell
from caesura.intercept.kv.costs import CostModel
from caesura.intercept.kv.views import Action
from caesura.scheduler.policy.lamps import memory_over_time
from caesura.scheduler.policy.ranking import Fcfs, Queued, QueueView, Score, Ssjf
from caesura.scheduler.predict.forecast import Forecast

BUDGET = 6

COST = CostModel(
    base=0.0,
    per_token=1.0,
    per_token_beyond=1.0,
    per_context=0.0,
    saturation=1,
    out_rate=1e12,
    in_rate=1e12,
)
"""A token is recomputed in a unit of time, and copied in none."""


@dataclass(frozen=True)
class Request:
    """A row of Table 1, and how far it has come; in tokens and units of time."""

    number: int
    length: int
    call_after: int
    call_units: int
    handling: Action
    decoded: int = 0
    resident: int = 0
    hosted: int = 0
    called_at: int | None = None

    @property
    def part_tokens(self) -> int:
        """What it holds at the end of the part that it is in."""
        return self.call_after if self.called_at is None else self.length

    @property
    def units_left(self) -> int:
        """Units that it still runs, those for recomputing among them."""
        return self.length - min(self.decoded, self.resident + self.hosted)

    def ready(self, now: int) -> bool:
        """Whether it could run."""
        waits = self.called_at is not None and now < self.called_at + self.call_units
        return self.decoded < self.length and not waits

    def run(self, now: int) -> "Request":
        """Return it after a unit in which it ran."""
        resident = self.resident + self.hosted
        if resident < self.decoded:
            return replace(self, resident=resident + 1, hosted=0)
        after = replace(self, decoded=self.decoded + 1, resident=resident + 1, hosted=0)
        if after.decoded != self.call_after:
            return after
        held = after.decoded
        return replace(
            after,
            called_at=now + 1,
            resident=held if self.handling == "preserve" else 0,
            hosted=held if self.handling == "swap" else 0,
        )


TABLE = (
    Request(1, length=6, call_after=5, call_units=2, handling="preserve"),
    Request(2, length=2, call_after=1, call_units=7, handling="discard"),
    Request(3, length=3, call_after=2, call_units=1, handling="swap"),
)

Rank = Callable[[Request], Score]


def view(other_tokens: int = BUDGET) -> QueueView:
    """Return the engine as rankings see it."""
    return QueueView(
        now=0.0,
        capacity_tokens=BUDGET,
        step_seconds=1.0,
        running=1,
        batch_tokens=other_tokens,
        swap_pays=True,
        cost=COST,
    )


def queued(request: Request, decode_tokens: float, calls: bool) -> Queued:
    """Return the request as rankings see it, with that many tokens to come before it calls."""
    return Queued(
        key=f"R{request.number}",
        arrival=0.0,
        queued_at=0.0,
        context_tokens=request.decoded,
        resident_tokens=request.resident,
        hosted_tokens=request.hosted,
        decoded_tokens=0,
        calls=int(request.called_at is not None),
        forecast=Forecast(
            decode_tokens=decode_tokens,
            segment_tokens=float(request.length - request.call_after),
            result_tokens=0.0,
            pause_seconds=float(request.call_units),
            pause_discount=0.0,
            ends=(0.0, 1.0) if calls else (1.0,),
        ),
    )


def by_arrival(request: Request) -> Score:
    """FCFS (Fig. 3a)."""
    return Fcfs().score(queued(request, request.units_left, calls=False), view())


def by_output(request: Request) -> Score:
    """Shortest job first by what is left of the output (Fig. 3b)."""
    return Ssjf().score(queued(request, request.units_left, calls=False), view())


def by_total(request: Request) -> Score:
    """Shortest job first by output and call together (Fig. 3c)."""
    call = request.call_units if request.called_at is None else 0
    return Ssjf().score(queued(request, request.units_left + call, calls=False), view())


def by_memory(request: Request, other_tokens: int = BUDGET, others: bool = True) -> Score:
    """Memory over time under the handling of Table 1 (Fig. 3d)."""
    calls = request.called_at is None
    seen = queued(request, request.part_tokens - request.decoded, calls)
    return (memory_over_time(seen, view(other_tokens), request.handling, others),)


def schedule(rank: Rank, table: Sequence[Request] = TABLE) -> str:
    """Return which request runs in each unit, as digits; in a dot's unit none could run."""
    requests, units = {one.number: one for one in table}, ""
    while any(one.decoded < one.length for one in requests.values()):
        held = sum(one.resident for one in requests.values())
        able = [
            one
            for one in requests.values()
            if one.ready(len(units)) and held - one.resident + one.part_tokens <= BUDGET
        ]
        if able:
            chosen = min(able, key=lambda one: (rank(one), one.number))
            after = chosen.run(len(units))
            finished = after.decoded == after.length
            requests[chosen.number] = replace(after, resident=0) if finished else after
        units += str(chosen.number) if able else "."
    return units


def completions(units: str) -> list[int]:
    """Return when each request was done."""
    return [units.rindex(str(one.number)) + 1 for one in TABLE]


POLICIES: dict[str, tuple[Rank, float | None]] = {
    "FCFS": (by_arrival, 11.66),
    "SJF by output length": (by_output, 10.33),
    "SJF by total length": (by_total, 11.0),
    "memory over time": (by_memory, 10.0),
    "its own memory only": (lambda one: by_memory(one, others=False), None),
}
"""The rankings and the average completion times that the paper gives."""


def table() -> Table:
    """Return the averages beside the paper's."""
    rows = []
    for name, (rank, paper) in POLICIES.items():
        units = schedule(rank)
        done = completions(units)
        given = "" if paper is None else f"{paper:.2f}"
        rows.append((name, given, f"{sum(done) / len(done):.2f}", *map(str, done), f"`{units}`"))
    columns = ("ranking", "average, paper's", "ours", "R1", "R2", "R3", "who runs in each unit")
    return Table.of(columns, rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the averages beside the paper's."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_option(parser)
    args = parser.parse_args(arguments)
    found = table()
    print(found.markdown())
    tell(args.tables, [found])


if __name__ == "__main__":
    main()
