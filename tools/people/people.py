"""`People`: the interface through which tools ask and people answer, and its settings."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from caesura.tools.context import Fact, mark
from caesura.tools.loops import on_loop
from caesura.tools.people.desk import Callback, Desk
from caesura.tools.people.pending import (
    MAX_WHO_CHARACTERS,
    UNSETTLED,
    BadAnswer,
    NoAnswer,
    Pending,
    State,
    checked,
    checked_answer,
    no_such_item,
    shown,
    whole,
)
from caesura.tools.people.store import Store
from caesura.tools.services import ToolSettings

T = TypeVar("T")
DEADLINE_SECONDS = 3600.0
EXPECTED_SECONDS = 60.0


class PeopleSettings(BaseModel):
    """Settings of `[people]`."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    approval_deadline_seconds: float = Field(
        default=DEADLINE_SECONDS,
        gt=0,
        description="a call without an approval by then is denied",
    )
    expected_seconds: float = Field(
        default=EXPECTED_SECONDS,
        gt=0,
        description="expected time to an answer, before one was measured",
    )
    max_items: int = Field(
        default=1000, ge=1, description="items kept; new questions fail once all are open"
    )
    max_items_per_key: int = Field(
        default=500,
        ge=1,
        description="open at once for the clients of one API key, so that other keys can ask",
    )
    keep_days: float = Field(
        default=30.0, gt=0, description="settled items are deleted at this age"
    )


class Settings(ToolSettings):
    """Settings of `[tools.ask_user]`."""

    deadline_seconds: float = Field(
        default=DEADLINE_SECONDS, gt=0, description="how long to wait for an answer"
    )
    default: str | None = Field(
        default=None, min_length=1, description="the answer at the deadline; without it, an error"
    )


DAY_SECONDS = 86_400.0


class People:
    """The questions of this process and earlier ones, kept in a file; for one event loop.

    To be used from several loops, it is given `where`, which returns the one for its work.

    path: the file; None keeps the questions in memory. on_question and on_approval are called
    with each `Pending` that opens, and may answer it: a question with a text, an approval with
    True, False, or a text, which denies with that reason. A result of None leaves the item open
    for an answer by its id. A callback that is not async runs in a thread. An exception from a
    callback ends the question.
    """

    def __init__(
        self,
        path: Path | None = None,
        settings: PeopleSettings | None = None,
        *,
        on_question: Callback | None = None,
        on_approval: Callback | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.where: Callable[[], asyncio.AbstractEventLoop] = asyncio.get_running_loop
        self.settings = settings or PeopleSettings()
        self.on_question = on_question
        self.on_approval = on_approval
        store = Store(path, max_items=self.settings.max_items)
        keep_seconds = self.settings.keep_days * DAY_SECONDS
        self._desk = Desk(store, keep_seconds, clock, self.settings.max_items_per_key)

    # -- asking ----------------------------------------------------------------------------------

    async def ask(
        self,
        question: str,
        options: Sequence[str] = (),
        *,
        deadline_seconds: float,
        default: str | None = None,
        tool: str = "ask_user",
    ) -> str:
        """Wait for a person's answer; return `default` at the deadline. Raises NoAnswer.

        The same question in the same conversation waits for the same answer.
        """
        question, options = checked(question, options)
        item = self._desk.new("question", tool, deadline_seconds)
        item = replace(item, question=question, options=options, default=default)
        about = [question, list(options)]
        settled = await self._settled(item, about, self.on_question)
        if settled.answer is None:
            raise NoAnswer(f"no answer within {deadline_seconds:g} seconds")
        return settled.answer

    async def approve(
        self, tool: str, arguments: Mapping[str, Any], *, deadline_seconds: float, notice: str = ""
    ) -> None:
        """Return when a person has approved a call. Raises NoAnswer without an approval.

        `notice` is shown beside the call. An approval counts for the same notice only.
        """
        text = shown(arguments)
        item = self._desk.new("approval", tool, deadline_seconds)
        item = replace(item, arguments=text, question=notice)
        settled = await self._settled(item, [text, notice] if notice else text, self.on_approval)
        if settled.state == "answered" and not settled.approved:
            reason = f": {settled.answer}" if settled.answer else ""
            raise NoAnswer(f"a person denied this call of {tool}{reason}")
        if not settled.approved:
            raise NoAnswer(
                f"no person approved this call of {tool} in {deadline_seconds:g} seconds"
            )

    async def _settled(self, item: Pending, about: Any, callback: Callback | None) -> Pending:
        mark("person.asked", kind=item.kind)
        settled = await self._there(lambda: self._desk.settled(item, about, callback))
        facts: dict[str, Fact] = {"state": settled.state}
        if item.kind == "approval":
            facts["approved"] = bool(settled.approved)
        mark("person.settled", **facts)
        return settled

    # -- answering -------------------------------------------------------------------------------

    @property
    def trouble(self) -> str | None:
        """Why the items are in memory and not in the file; None: no problem."""
        return self._desk.store.trouble

    @property
    def waited_for(self) -> tuple[Pending, ...]:
        """The open items that runs of this process wait for, the oldest first."""
        waiting = list(self._desk.waiting.values())
        found = [each.item for each in waiting if each.is_open]
        return tuple(sorted(found, key=lambda item: item.created))

    async def listed(self, states: Collection[State] = UNSETTLED) -> list[Pending]:
        """Return the items in these states, the oldest first."""

        async def listed() -> list[Pending]:
            await self._desk.sweep()
            return await self._desk.do(self._desk.store.listed, tuple(states))

        return await self._there(listed)

    async def get(self, item_id: str) -> Pending:
        """Return the item of that id; raises NoSuchItem."""

        async def found() -> Pending | None:
            await self._desk.sweep()
            return await self._desk.do(self._desk.store.get, whole(item_id))

        item = await self._there(found)
        if item is None:
            raise no_such_item(item_id)
        return item

    async def answer(self, item_id: str, text: str, who: str = "") -> Pending:
        """Answer a question and return the changed item.

        Raises BadAnswer for an invalid text or an approval, NotPending for a settled item.
        """
        text = checked_answer(text)
        if (await self.get(item_id)).kind != "question":
            raise BadAnswer("this is a call to approve: approve or deny it")
        return await self._settle(item_id, answer=text, who=_name(who))

    async def decide(self, item_id: str, approve: bool, reason: str = "", who: str = "") -> Pending:
        """Approve or deny a call and return the changed item.

        Raises BadAnswer for an invalid reason or a question, NotPending for a settled item.
        """
        said = checked_answer(reason) if reason.strip() else None
        if (await self.get(item_id)).kind != "approval":
            raise BadAnswer("this is a question: answer it with a text")
        return await self._settle(item_id, answer=said, approved=approve, who=_name(who))

    async def _settle(self, item_id: str, **said: Any) -> Pending:
        return await self._there(lambda: self._desk.settle(item_id, **said))

    async def _there(self, make: Callable[[], Awaitable[T]]) -> T:
        return await on_loop(self.where(), make)

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[AsyncIterator[Pending]]:
        """Yield items as they open and change, first those that can be answered.

        The iterator ends shortly before the process, and for a reader that falls far behind.
        """
        with self._desk.listeners.listen() as queue:
            listed = await self.listed()
            # Items that changed while the list was made follow in their newer form.
            changed = self._desk.listeners.ids_in(queue)
            first = [item for item in listed if item.id not in changed]
            yield self._desk.listeners.read(queue, first)

    # -- start and end ---------------------------------------------------------------------------

    async def start(self) -> None:
        """Take over the items of earlier processes, and their deadlines."""
        await self._desk.sweep()

    def outlive(self, session_id: str) -> None:
        """Leave the items of a session open when its runs are cancelled, for another process."""
        self._desk.outlive(session_id)

    async def leave(self) -> None:
        """Prepare for the process's end: runs that are cancelled leave their items open."""
        await self._desk.leave()

    async def aclose(self) -> None:
        """Fail the runs that still wait, and close the file. May be called twice."""
        await self._desk.aclose()


def _name(who: str) -> str:
    return whole(who.strip()[:MAX_WHO_CHARACTERS])
