"""A scripted engine whose tokens a chat template writes, as a real engine's."""

import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from typing import Any

from caesura import ScriptedEngine
from caesura.intercept.calls.events import Event, TurnEnded
from caesura.runtime.testing.scripted_engine import ScriptedSession
from caesura.scheduler.answers import Missed
from caesura.scheduler.histories import length_up_to_answer
from caesura.scheduler.messages import Message, Sampling, SessionSpec
from caesura.scheduler.session_log import LoggedTurn, SessionLog, TurnOutcome
from tests.kit.server import MODEL

Turn = tuple[tuple[int, ...], tuple[int, ...]]
"""The whole context with which a turn was sent, and what was sampled behind it."""


def rendered(messages: Sequence[Message]) -> list[int]:
    """Return the tokens of messages, which are no token that is sampled."""
    told = [{"role": each["role"], "content": each.get("content")} for each in messages]
    return [1000 + byte for each in told for byte in json.dumps(each).encode()]


class RenderedEngine(ScriptedEngine):
    """Writes the tokens of messages one after the other; an answer that comes back has its own."""

    def __init__(self, script: Any, **settings: Any) -> None:
        super().__init__(script, model=MODEL, context_tokens=10**6, **settings)
        self.computed: dict[tuple[str, str], list[Turn]] = {}
        """The turns of each session of a client, by its tenant and its name, in order."""
        self.logs = 0
        """How many sessions of the engine had a log."""

    def open(self, spec: SessionSpec, log: SessionLog | None = None) -> ScriptedSession:
        if log is None:
            return super().open(spec)
        self.logs += 1
        made = _Session(self, spec, log)
        self.sessions.append(made)
        return made

    @property
    def reader(self) -> Any:
        return self._scripts[0]


class _Session(ScriptedSession):
    def __init__(self, engine: RenderedEngine, spec: SessionSpec, log: SessionLog) -> None:
        self.log = _Log(engine, self, log)
        super().__init__(engine, spec, engine.reader, len(engine.sessions) + 1, self.log)

    async def turn(
        self, messages: Sequence[Message], sampling: Sampling | None = None
    ) -> AsyncGenerator[Event, None]:
        """Play the next item; its usage is that of the tokens in the log."""
        before = len(self.log.context)
        async for event in super().turn(messages, sampling):
            if isinstance(event, TurnEnded):
                context, sampled = self.log.computed
                prompt = len(context) - before
                event = replace(event, prompt_tokens=prompt, completion_tokens=len(sampled))
            yield event

    async def remember(self, answer: Sequence[Message]) -> None:
        engine = self._engine
        if self._stop_text is None:
            history = engine.histories.of((*self.turns[0], *answer), self.spec)
            engine.answers.remember(history, self.log.context)


class _Log:
    """Stands before the log of one session, and gives its turns their tokens."""

    def __init__(self, engine: RenderedEngine, session: _Session, log: SessionLog) -> None:
        self._engine = engine
        self._session = session
        self._log = log
        self.context: list[int] = []
        self._place = 0
        """That of its last turn among those of its session."""

    @property
    def key(self) -> str:
        return self._log.key

    @property
    def turns(self) -> Sequence[LoggedTurn]:
        return self._log.turns

    @property
    def computed(self) -> Turn:
        """The last turn."""
        return self._computed()[self._place]

    def begin(self, turn: LoggedTurn) -> None:
        messages = self._session.turns[-1]
        new = rendered(messages) if self.context else self._prompt(messages)
        self.context += new
        self._place = len(self._computed())
        self._computed().append((tuple(self.context), ()))
        self._log.begin(replace(turn, appended=new))

    def _prompt(self, messages: Sequence[Message]) -> list[int]:
        engine, length = self._engine, length_up_to_answer(messages)
        if length is None:
            return rendered(messages)
        history = engine.histories.of(messages[:length], self._session.spec)
        found = engine.answers.find(history)
        if isinstance(found, Missed):
            return rendered(messages)
        return [*found, *rendered(messages[length:])]

    def sampled(self, tokens: Sequence[int]) -> None:
        self.context += tokens
        computed = self._computed()
        context, before = computed[self._place]
        computed[self._place] = (context, (*before, *tokens))
        self._log.sampled(tokens)

    def end(self, outcome: TurnOutcome) -> None:
        self._log.end(outcome)

    def _computed(self) -> list[Turn]:
        origin = self._session.spec.origin
        return self._engine.computed.setdefault((origin.tenant, origin.session), [])
