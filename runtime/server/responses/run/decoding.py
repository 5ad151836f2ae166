"""The decoding of one response, tried again with fewer messages if they do not fit."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace

from caesura.runtime.engine import EngineSession
from caesura.runtime.errors import ContextOverflow
from caesura.runtime.events import RunEvent
from caesura.runtime.server.chat.plan import Plan
from caesura.runtime.server.decoding import apart, decode
from caesura.runtime.server.people import pending_told
from caesura.runtime.server.responses.request.truncation import shortened
from caesura.runtime.server.responses.run.live import LiveRun
from caesura.runtime.server.responses.run.part import Part
from caesura.runtime.server.state import State
from caesura.scheduler.messages import Message
from caesura.tools.people import Pending


class Decoding:
    """The decoding of one response: its session, which a shortened conversation opens again."""

    def __init__(self, state: State, plan: Plan, part: Part, headers: Mapping[str, str]) -> None:
        self.run: LiveRun | None = None
        self._state = state
        self._plan = apart(state, plan)
        self._kept = part.kept
        self._name = part.id
        self._shortens = part.answer.resource.request.truncation == "auto"
        self._headers = headers
        self._session = self._opened(self._plan)

    def _opened(self, plan: Plan) -> EngineSession:
        log = None if self._kept is None else self._kept.journal
        return self._state.engine.open(plan.spec, log)

    async def events(self) -> AsyncGenerator[RunEvent, None]:
        """Yield the run's events; tell the run of items that wait for a person."""
        people = self._state.people
        watching = pending_told(people, self._name, self._plan.registry, self._tell)
        async with watching:
            plan = self._plan
            while True:
                decoding = self._decoded(plan)
                try:
                    async with aclosing(decoding) as events:
                        async for event in events:
                            self._shortens = False
                            yield event
                    return
                except ContextOverflow:
                    shorter = self._shortened(plan)
                    if shorter is None:
                        raise
                    plan = shorter
                    await self._session.close()
                    self._session = self._opened(plan)

    def _decoded(self, plan: Plan) -> AsyncGenerator[RunEvent, None]:
        return decode(self._state, plan, self._session, self._name, self._headers, self._kept)

    def _shortened(self, plan: Plan) -> Plan | None:
        """Return the plan with fewer messages, or None if the run must not be tried again."""
        messages = shortened(plan.messages) if self._shortens else None
        return None if messages is None else replace(plan, messages=tuple(messages))

    async def close(self, leaves_calls: bool, answers: Sequence[Sequence[Message]]) -> None:
        """Close the engine's session; a follow-up that holds one of `answers` continues from it."""
        for answer in answers:
            if answer and answer[-1]["role"] == "assistant":
                await self._session.remember(answer)
        await self._session.close(follow_up=leaves_calls)

    async def _tell(self, item: Pending) -> None:
        if self.run is not None:
            await self.run.ask(item)
