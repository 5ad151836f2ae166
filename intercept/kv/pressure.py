"""How much others wanted the memory of paused requests, as charges on the blocks that these hold.

At a moment, waiting requests lack D blocks, and paused requests hold P. Each held block then costs
the share D/P of its time, at most all of it: InferCept's waste of preserving (equation 2), counted
only while a request had use for the memory. So the charges of all pauses add up to the integral of
min(D, P), and where memory is free, holding costs nothing.

What keeping would have cost is another share, since blocks that were given up served others. Had
all R of these been kept, R more would be lacked, less those that are free, and paused requests
would hold P + R.

A change costs O(1): running integrals of both shares are read at the begin and the end of a charge.
A request that queues behind its pause may lack blocks itself. No other request wants its blocks for
that, so a charge leaves out what its own request lacks.
"""

from collections.abc import Mapping
from typing import NamedTuple


def share(lacked: float, held: float) -> float:
    """Return the part of `held` paused blocks that others lack, from 0 to 1."""
    return min(1.0, lacked / held) if lacked > 0 and held > 0 else 0.0


class Reading(NamedTuple):
    """Seconds so far, weighted with the share of held blocks that others wanted.

    `held` goes by what paused requests hold, and `kept` by what they would hold had they given up
    nothing. `wanted` are the seconds in which the latter share was not 0.
    """

    held: float = 0.0
    kept: float = 0.0
    wanted: float = 0.0


NOBODY = Reading()
"""Nobody wants any block."""


class Charge:
    """The blocks of one pause, and what holding them has cost."""

    __slots__ = (
        "_since",
        "begun",
        "blocks",
        "closed",
        "cost",
        "held",
        "own",
        "paused_cost",
        "returned",
        "with_result",
    )

    def __init__(self, blocks: int, begun: Reading) -> None:
        """Begin with `blocks` blocks."""
        self.blocks = self.held = blocks
        self.begun = self._since = begun
        self.returned: Reading | None = None
        self.closed: Reading | None = None
        self.with_result = 0
        """Blocks that it held when its result came."""
        self.cost = 0.0
        """Block-seconds of its held blocks that others wanted."""
        self.paused_cost = 0.0
        """The part of `cost` before its result came."""
        self.own = NOBODY
        """Weighted seconds that are due to its own request's lack, behind its result."""

    @property
    def given_up(self) -> int:
        """Blocks that it gave up and does not want back yet."""
        return max(0, self.blocks - self.held) if self.returned is None else 0

    def settle(self, reading: Reading) -> None:
        """Charge the blocks that it held until now."""
        self.cost += self.held * (reading.held - self._since.held)
        self._since = reading

    def spare(self, reading: Reading, due: Reading) -> None:
        """Settle, and take back the weighted seconds that are `due` to its own request's lack."""
        self.settle(reading)
        self.cost = max(self.paused_cost, self.cost - self.held * due.held)
        self.own = Reading(*(so_far + more for so_far, more in zip(self.own, due, strict=True)))

    @property
    def queued_cost(self) -> float:
        """The part of `cost` from its result until it ran."""
        return 0.0 if self.returned is None else self.cost - self.paused_cost

    @property
    def wanted(self) -> Reading:
        """Weighted seconds of the pause, up to its result."""
        return _between(self.begun, self.returned or self.closed or self._since)

    @property
    def queued(self) -> Reading:
        """Weighted seconds from the result until it ran, without its own request's lack."""
        until = self.closed or self._since
        return _between(self.own, _between(self.returned or until, until))

    @property
    def gave_up(self) -> bool:
        """Whether its blocks became fewer."""
        return self.held < self.blocks


def _between(begin: Reading, end: Reading) -> Reading:
    return Reading(*(max(0.0, until - since) for since, until in zip(begin, end, strict=True)))


class Pressure:
    """The charges of all pauses of one engine; the time is handed in and never goes back."""

    def __init__(self) -> None:
        self._at = 0.0
        self._reading = Reading()
        self._rates = NOBODY
        self._lacked = 0.0
        self._free = 0
        self._held = 0
        self._given_up = 0
        self._own: Mapping[Charge, float] = {}
        self._open: set[Charge] = set()

    def __len__(self) -> int:
        return len(self._open)

    def read(self, now: float) -> Reading:
        """Return the weighted seconds up to `now`."""
        passed = now - self._at
        if passed > 0:
            self._at = now
            if (rates := self._rates) is not NOBODY:
                added = zip(self._reading, rates, strict=True)
                self._reading = Reading(*(so_far + passed * rate for so_far, rate in added))
                for charge, own in self._own.items():
                    if charge in self._open:
                        others = self._shares(max(0.0, self._lacked - own))
                        due = (passed * (r - o) for r, o in zip(rates, others, strict=True))
                        charge.spare(self._reading, Reading(*due))
        return self._reading

    def lack(
        self, now: float, lacked: float, free: int, own: Mapping[Charge, float] | None = None
    ) -> None:
        """Waiting requests lack `lacked` blocks from now on, and `free` blocks are free.

        `own` is the part of `lacked` that the requests of these charges lack, whose results came.
        """
        self.read(now)
        self._lacked, self._free, self._own = lacked, free, own or {}
        self._weigh()

    def begin(self, now: float, blocks: int) -> Charge:
        """Return the charge of a pause that begins with `blocks` blocks."""
        charge = Charge(blocks, self.read(now))
        self._open.add(charge)
        self._held += blocks
        self._weigh()
        return charge

    def change(self, charge: Charge, now: float, held: int) -> None:
        """Let a pause hold `held` blocks from now on."""
        if charge not in self._open or held == charge.held:
            return
        charge.settle(self.read(now))
        self._given_up -= charge.given_up
        self._held += held - charge.held
        charge.held = held
        self._given_up += charge.given_up
        self._weigh()

    def result(self, charge: Charge, now: float) -> None:
        """Note that the result of a pause has come: it queues, and wants its blocks back."""
        if charge.returned is None:
            self._given_up -= charge.given_up
            charge.returned, charge.with_result = self.read(now), charge.held
            charge.settle(charge.returned)
            charge.paused_cost = charge.cost
            self._weigh()

    def end(self, charge: Charge, now: float) -> None:
        """Close the charge of a pause that has ended."""
        if charge in self._open:
            self._open.discard(charge)
            charge.settle(self.read(now))
            charge.closed = self._reading
            self._held -= charge.held
            self._given_up -= charge.given_up
            self._weigh()

    def _weigh(self) -> None:
        self._rates = self._shares(self._lacked)

    def _shares(self, lacking: float) -> Reading:
        """Return the weights of a second in which waiting requests lack `lacking` blocks."""
        lacked = lacking + self._given_up - (0 if lacking > 0 else self._free)
        if lacked <= 0:
            return NOBODY
        return Reading(
            held=share(lacking, self._held),
            kept=share(lacked, self._held + self._given_up),
            wanted=1.0,
        )
