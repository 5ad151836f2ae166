"""`RunJournal`: what a run does, kept until its writer takes it."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from caesura.runtime.journal.record import Kind, Recorded, begun, encoded
from caesura.runtime.journal.store import Entry
from caesura.scheduler.session_log import LoggedTurn, SampledFacts, TurnOutcome
from caesura.tools.result import ToolResult


class Writer(Protocol):
    """Who writes journals; see `JournalWriter`."""

    @property
    def is_behind(self) -> bool:
        """Whether streams must not wait for the store."""
        ...

    def wake(self, run: "RunJournal") -> None:
        """Note that a run has something to write."""
        ...

    def hurry(self) -> None:
        """Write what waits without gathering more."""
        ...

    def delete(self, run: "RunJournal") -> None:
        """Delete a run's journal when the store can be written."""
        ...

    async def record(self, run: "RunJournal") -> None:
        """Return when all that the run has added survives a power failure."""
        ...


class RunJournal:
    """Keeps what a run does until the writer takes it. It is also the log of the run's session.

    A run whose journal has a gap cannot be taken up again: it is dropped, and the run goes on
    without one.
    """

    def __init__(self, writer: Writer, run_id: str, begin: dict[str, Any] | Recorded) -> None:
        """Begin the journal of a run, or go on with one that was read."""
        self.id = run_id
        self.taken_over = False
        """Whether another server goes on with the run, so that this one must stop it."""
        self.on_taken_over: Callable[[], None] | None = None
        """Called once when another server has taken the run over."""
        self.was_sent = isinstance(begin, Recorded)
        """Whether the store may hold entries of this run."""
        self.dropped = self.ended = False
        self._writer = writer
        self._turns: Sequence[LoggedTurn] = ()
        self._tokens: list[int] = []
        self._streamed: list[int | str] = []
        self._waiting: list[Entry] = []
        self._then: list[Callable[[], None]] = []
        self._next = 0
        self._has_shown = False
        """Whether the stream has shown something of the last turn."""
        if isinstance(begin, Recorded):
            self._next, self._turns = begin.entries, begin.turns
            self._append(encoded("resumed", begin.deaths))
        else:
            self._append(begun(begin))

    # -- the log of the session ------------------------------------------------------------------

    @property
    def key(self) -> str:
        """The run's id, from which the ids of calls are made."""
        return self.id

    @property
    def turns(self) -> Sequence[LoggedTurn]:
        """The turns to replay."""
        return self._turns

    def begin(self, turn: LoggedTurn) -> None:
        """Add a turn of the session; with pictures or sounds, nothing can be gone on from."""
        if turn.has_media:
            self.drop()
        self._has_shown = False
        self.add("turn", turn)

    @property
    def takes_facts(self) -> bool:
        """Whether it wants more of tokens than their ids: no."""
        return False

    def sampled(self, tokens: Sequence[int], facts: SampledFacts | None = None) -> None:
        """Add tokens to the last turn."""
        if not self._is_over:
            if not self._tokens:
                self._writer.wake(self)
            self._tokens += tokens

    def end(self, outcome: TurnOutcome) -> None:
        """End the last turn."""
        self.add("outcome", outcome)

    # -- what the run does -----------------------------------------------------------------------

    def add(self, kind: Kind, value: Any) -> None:
        """Add an entry behind all that was added before."""
        if not self._is_over:
            self._flush()
            self._append(encoded(kind, value))

    def streamed(self, step: int | str) -> None:
        """Add a step that the client was sent."""
        if not self._is_over:
            if not self._streamed:
                self._writer.wake(self)
            self._streamed.append(step)

    def result(self, result: ToolResult) -> None:
        """Add the result of a call."""
        self.add("result", result)

    async def recorded(self) -> None:
        """Return when all that was added survives a power failure; see `JournalWriter.record`."""
        await self._writer.record(self)

    def after_written(self, then: Callable[[], None]) -> None:
        """Call `then` when the store has all that was added, or will not have it for now."""
        if self._is_over or self._writer.is_behind or not self.has_news:
            then()
        else:
            self._then.append(then)
            if not self._has_shown:  # clients wait for the first text
                self._has_shown = True
                self._writer.hurry()

    def finish(self) -> None:
        """Delete the journal: the run is over, and its answer is kept elsewhere."""
        if not self.ended:
            self.ended = True
            self._forget()
            self._writer.delete(self)

    def drop(self) -> None:
        """Give the journal up, since the run could not be repeated from it."""
        if not self._is_over:
            self.dropped = True
            self._forget()
            self._writer.delete(self)

    # -- for the writer --------------------------------------------------------------------------

    @property
    def has_news(self) -> bool:
        """Whether there are entries that the store does not have."""
        return bool(self._waiting or self._tokens or self._streamed)

    def flushed(self) -> list[Entry]:
        """Return the entries that the store does not have."""
        self._flush()
        return list(self._waiting)

    def written(self, entries: int) -> None:
        """Forget the first entries, which the store has now."""
        del self._waiting[:entries]

    def taken_callbacks(self) -> list[Callable[[], None]]:
        """Return what is to be called when the entries so far are written, and forget it."""
        then, self._then = self._then, []
        return then

    def leave(self) -> None:
        """Stop writing: another server has the run, or it is gone from the store."""
        self.dropped = True
        self._forget()

    @property
    def goes_on(self) -> bool:
        """Whether another process can go on with the run when this one ends now."""
        return self.taken_over or not self._is_over

    @property
    def _is_over(self) -> bool:
        return self.dropped or self.ended

    def _forget(self) -> None:
        self._waiting, self._tokens, self._streamed = [], [], []
        for then in self.taken_callbacks():
            then()

    def _flush(self) -> None:
        tokens, streamed = self._tokens, self._streamed
        self._tokens, self._streamed = [], []
        if tokens and streamed:
            self._append(encoded("told_tokens", [tokens, streamed]))
        elif tokens:
            self._append(encoded("tokens", tokens))
        elif streamed:
            self._append(encoded("told", streamed))

    def _append(self, body: str) -> None:
        self._waiting.append(Entry(self.id, self._next, body))
        self._next += 1
        self._writer.wake(self)
