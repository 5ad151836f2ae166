"""Chat completions that a client can come back for, by the header `Idempotency-Key`.

Such a completion goes on when its client leaves, and over a restart of the server. The same request
with the same key joins the run under way, or gets its answer or error. Once that was sent, or
nobody has come for it in time, the run is gone.
"""

import asyncio
import hashlib
import logging
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

from caesura.runtime.journal.journaled_run import JournaledRun
from caesura.runtime.journal.record import Recorded
from caesura.runtime.run.context import Plan
from caesura.runtime.run.served_agent import instructed
from caesura.runtime.server.api.chat_answer import Answer, Numbered, answer_of
from caesura.runtime.server.api.chat_request import ChatRequest, make_plan, parse
from caesura.runtime.server.api.decoding import open_session, stream_pieces, with_sender
from caesura.runtime.server.http.errors import ApiError
from caesura.runtime.server.keys.sender import IDEMPOTENCY_KEY, Sender
from caesura.runtime.server.load.state import State
from caesura.scheduler.messages import has_media

LOG = logging.getLogger(__name__)

API = "chat"
MAX_RUNS = 256
"""The most runs that are kept for their clients; the oldest answer that nobody fetched goes."""
KEPT_SECONDS = 3600.0
"""How long an answer or error waits for its client; in each process anew, which reads it again."""


class KeptChat:
    """One completion, whose deltas any number of readers get from the first one on."""

    def __init__(self, answer: Answer, asked: str, journaled: JournaledRun) -> None:
        self.answer = answer
        self.asked = asked
        """The digest of the request's body."""
        self.has_ended = False
        self.goes_on = False
        """Whether the run was broken off here, and a later process or another server has it."""
        self._journaled = journaled
        self._deltas: list[Numbered] = []
        self._error: Exception | None = None
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self._is_forgotten = False
        """Whether it waits for no client, or no more in this process."""

    @property
    def has_failed(self) -> bool:
        """Whether an error ended the run, which its readers are told."""
        return self._error is not None

    def start(
        self, deltas: AsyncGenerator[Numbered, None], expired: Callable[["KeptChat"], None]
    ) -> None:
        """Begin to run in a task of its own.

        `expired` is called if the run has ended and is not forgotten in time.
        """
        self._task = asyncio.create_task(self._run(deltas), name=f"chat {self.answer.id}")
        self._task.add_done_callback(lambda _: self._expire(expired))

    def _expire(self, expired: Callable[["KeptChat"], None]) -> None:
        if not self._is_forgotten:
            loop = asyncio.get_running_loop()
            self._expiry = loop.call_later(KEPT_SECONDS, expired, self)

    async def read(self) -> AsyncGenerator[Numbered, None]:
        """Yield all deltas, also those to come; raise the error that ended the run."""
        position = 0
        while True:
            changed = self._changed
            while position < len(self._deltas):
                yield self._deltas[position]
                position += 1
            if self.has_ended:
                if self._error is not None:
                    raise self._error
                return
            await changed.wait()

    def forget(self) -> None:
        """Delete the journal, since the answer was sent or nobody wants it.

        That of a run that goes on elsewhere stays.
        """
        self._is_forgotten = True
        if self._expiry is not None:
            self._expiry.cancel()
        if not self.goes_on:
            self._journaled.journal.finish()

    async def leave(self) -> None:
        """Break the run off, or let its answer wait no more; a later process goes on with it."""
        self._is_forgotten = True
        if self._expiry is not None:
            self._expiry.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self, deltas: AsyncGenerator[Numbered, None]) -> None:
        try:
            async with aclosing(deltas):
                async for delta in deltas:
                    self._deltas.append(delta)
                    self._wake()
            self.goes_on = not await self._journaled.is_ours()
        except asyncio.CancelledError:
            self.goes_on = True
        except Exception as error:
            self._error = error
        if self.goes_on:
            self._error = _goes_on()
        self.has_ended = True
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


class KeptChats:
    """The completions of one application that their clients can come back for, by id."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._runs: dict[str, KeptChat] = {}

    def joined(
        self, shown: Sender, body: bytes, asked: ChatRequest, plan: Plan, began: float
    ) -> KeptChat | None:
        """Return the run of a request, begun now unless it is under way; None: it has no key.

        Raises `ApiError` 422 if the key was sent with another request.
        """
        writer = self._state.journal
        lost = plan.choices > 1 or plan.sampling.logprobs is not None or has_media(plan.messages)
        if writer is None or lost or not shown.asker or not len(plan.registry):
            return None
        run_id = f"chatcmpl-{shown.asker[:32]}"
        digest = hashlib.sha256(body).hexdigest()
        known = self._runs.get(run_id)
        if known is not None:
            if known.asked != digest:
                raise ApiError(
                    422,
                    f"This {IDEMPOTENCY_KEY} was sent with another request, whose answer was not "
                    "fetched yet: send that request again, or another key.",
                    code="idempotency_key_reused",
                )
            return known
        self._make_room()
        sender = shown.of_user(plan.user, run_id, plan.spec.origin)
        answer = _answer(plan, asked, run_id, int(time.time()))
        about = {"api": API, "body": body.decode(), "created": answer.created}
        journal = writer.begin(run_id, about | {"sender": sender.to_wire()})
        journaled = JournaledRun(writer, journal, self._state.people)
        return self._start(KeptChat(answer, digest, journaled), plan, journaled, sender, began)

    async def resume(self, records: Sequence[Recorded]) -> None:
        """Go on with the runs of completions among those that an ended process has left."""
        for record in records:
            if record.about.get("api") != API or self._state.journal is None:
                continue
            state, journal = self._state, self._state.journal.resume(record)
            try:
                body = str(record.about["body"]).encode()
                asked = parse(body)
                agents = await instructed(state.agents, asked.model)
                plan = make_plan(asked, state.engine, state.tools, state.limits, agents)
                sender = Sender.from_wire(record.about["sender"])
                created = int(record.about["created"])
                answer = _answer(plan, asked, record.run_id, created)
            except Exception as error:  # whatever it holds, the server starts and others go on
                LOG.warning("the completion %s does not go on: %s", record.run_id, str(error)[:200])
                journal.finish()
                continue
            journaled = JournaledRun(self._state.journal, journal, self._state.people, record)
            run = KeptChat(answer, hashlib.sha256(body).hexdigest(), journaled)
            self._start(run, plan, journaled, sender, time.monotonic())

    def delivered(self, run: KeptChat) -> None:
        """Forget a run whose answer or error was sent, unless it goes on elsewhere."""
        if not run.goes_on:
            self._forget(run)

    def _forget(self, run: KeptChat) -> None:
        if self._runs.get(run.answer.id) is run:
            del self._runs[run.answer.id]
        run.forget()

    async def leave(self) -> None:
        """Break all runs off; a later process goes on with them."""
        await asyncio.gather(*(run.leave() for run in self._runs.values()))

    def _start(
        self,
        run: KeptChat,
        plan: Plan,
        journaled: JournaledRun,
        sender: Sender,
        began: float,
    ) -> KeptChat:
        self._runs[run.answer.id] = run
        run.start(self._deltas(run.answer, plan, journaled, sender, began), self._forget)
        return run

    async def _deltas(
        self,
        answer: Answer,
        plan: Plan,
        journaled: JournaledRun,
        sender: Sender,
        began: float,
    ) -> AsyncGenerator[Numbered, None]:
        if journaled.given_up is not None:
            raise journaled.given_up
        state = self._state
        plan = with_sender(state, plan, sender)
        async with open_session(state, plan, answer, journaled) as session:
            decoding = stream_pieces(state, plan, session, answer, began, sender, journaled)
            async with aclosing(decoding) as deltas:
                async for delta in deltas:
                    yield delta

    def _make_room(self) -> None:
        ended = [run for run in self._runs.values() if run.has_ended]
        if len(self._runs) < MAX_RUNS:
            return
        if not ended:
            raise ApiError(429, f"{MAX_RUNS} requests with a key are under way: retry later.")
        self._forget(ended[0])


def _answer(plan: Plan, asked: ChatRequest, run_id: str, created: int) -> Answer:
    answer = answer_of(plan, asked)
    answer.id, answer.created = run_id, created
    return answer


def _goes_on() -> ApiError:
    return ApiError(
        503,
        "The server stopped before the answer was complete. It goes on after the restart: send the "
        f"request again with the same {IDEMPOTENCY_KEY}.",
        code="server_stopped",
    )
