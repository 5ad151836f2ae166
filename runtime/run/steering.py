"""What a caller says to a run that is under way: words for the model, or that it shall stop.

The turn under way is cut at a safe place, the words are appended behind what was said, and the same
request goes on. Where a turn cannot be cut, they are told at its end.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from caesura.runtime.engine import EngineSession
from caesura.runtime.errors import UsageError
from caesura.runtime.run.media import Content
from caesura.scheduler.messages import Message

CUT_TOKENS = 48
"""How many tokens of text are decoded at most until a safe place is found; about two sentences."""
CUT_SECONDS = 5.0
"""How long an engine may take to say that it will cut a turn."""
MAX_WORDS = 32
"""The most messages that wait to be told."""


@dataclass(slots=True)
class _Words:
    content: Content
    told: asyncio.Future[bool]


class Steering:
    """What waits to be told to one run."""

    def __init__(self) -> None:
        self._words: list[_Words] = []
        self._stops = False
        self._is_over = False
        self._session: EngineSession | None = None
        self._cutting: set[asyncio.Task[bool]] = set()
        self._wake: Callable[[], None] | None = None

    # -- the caller's side -----------------------------------------------------------------------

    def say(self, content: Content) -> asyncio.Future[bool]:
        """Tell the model something; the result is whether it was told before the run ended.

        Raises `UsageError` if the run has ended, or if too much waits to be told.
        """
        self._check(content)
        if len(self._words) >= MAX_WORDS:
            raise UsageError(
                f"{MAX_WORDS} messages wait to be told to this run: wait until it reads them"
            )
        told = asyncio.get_running_loop().create_future()
        self._words.append(_Words(content, told))
        self._act(CUT_TOKENS)
        return told

    def stop(self) -> None:
        """Let the run end at the next token; raise `UsageError` if it has ended."""
        self._check()
        self._stops = True
        self._act(1)

    def _check(self, content: Content | None = None) -> None:
        if self._is_over:
            what = "" if content is None else f": send {content!r:.80} as the next prompt"
            raise UsageError(f"the run has ended{what}")

    def _act(self, tokens: int) -> None:
        if self._session is not None:
            task = asyncio.create_task(self._session.cut(tokens))
            self._cutting.add(task)
            task.add_done_callback(self._cutting.discard)
        elif self._wake is not None:
            self._wake()

    # -- the run's side --------------------------------------------------------------------------

    def nudge(self) -> None:
        """Let the turn that decodes be cut, if one does: something else is to be told."""
        if self._session is not None:
            self._act(CUT_TOKENS)

    @property
    def is_pending(self) -> bool:
        """Whether something waits to be told."""
        return bool(self._words)

    @property
    def stops(self) -> bool:
        """Whether the run is to end."""
        return self._stops

    def decodes(self, session: EngineSession) -> None:
        """Note that a turn decodes, which may be cut."""
        self._session = session
        if self._stops or self._words:
            self._act(1 if self._stops else CUT_TOKENS)

    async def rests(self) -> None:
        """Note that no turn decodes."""
        self._session = None
        tasks = {*self._cutting}
        if tasks:  # a cut must not reach the next turn
            _, late = await asyncio.wait(tasks, timeout=CUT_SECONDS)
            for task in late:
                task.cancel()

    def wakes(self, wake: Callable[[], None] | None) -> None:
        """Call a function when something is said while no turn decodes; None: call none."""
        self._wake = wake

    def take(self) -> list[Message]:
        """Return what waits as messages, which are told now."""
        words, self._words = self._words, []
        for each in words:
            if not each.told.done():
                each.told.set_result(True)
        return [{"role": "user", "content": each.content} for each in words]

    def over(self) -> Sequence[Content]:
        """Note that the run has ended; return what was not told."""
        self._is_over = True
        words, self._words = self._words, []
        for each in words:
            if not each.told.done():
                each.told.set_result(False)
        return [each.content for each in words]


class LiveSession:
    """The part of a session that reaches into its run."""

    _steering: Steering | None = None
    """Of the run under way."""

    async def steer(self, words: Content) -> bool:
        """Tell the model something while it answers: a text, or a list of parts.

        The turn is cut at the end of a line or of a sentence, and the same request goes on behind
        the words, which are a message of the user. Calls under way are not undone: behind a turn
        of calls, and where a grammar leads the turn, the words are told at its end. Returns
        whether the model was told before the run ended.

        Raises `UsageError` if no run is under way, or if too much waits to be told.
        """
        return await self._reached().say(words)

    def interrupt(self) -> None:
        """End the run under way with what the model has written, with reason `interrupted`.

        The engine keeps the request, so that the next prompt goes on behind that text. Calls in
        the background are cancelled. Calls that the model waits for are not: the run ends with
        their turn. Raises `UsageError` if no run is under way.
        """
        self._reached().stop()

    def _reached(self) -> Steering:
        if self._steering is None:
            raise UsageError(f"{self!r} has no run under way: give it a prompt by run()")
        return self._steering
