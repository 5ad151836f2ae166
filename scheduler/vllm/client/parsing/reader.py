"""Parses one turn of the model into text, reasoning, calls of all kinds and stop texts.

The engine itself stops at the token that completes a stop text.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import replace

from caesura.intercept.calls.events import (
    ArgumentsDelta,
    CallEvent,
    CallFinished,
    CallMalformed,
    CallStarted,
    Event,
    ReasoningDelta,
    TextDelta,
)
from caesura.intercept.calls.formats import REACT, CallFormat
from caesura.intercept.calls.inline import InlineParser
from caesura.intercept.calls.markers import (
    Hit,
    SpelledOpeners,
    first_hit,
    held_back,
    unmarked,
)
from caesura.intercept.calls.react import ReactParser
from caesura.intercept.calls.thinking import Thinking, without_thinking
from caesura.scheduler.messages import Message
from caesura.scheduler.vllm.client.parsing import TurnParser
from caesura.scheduler.vllm.client.parsing.shown import ShownText, Spans


class TurnReader:
    """Chains the parsers of a turn: the text that one parser leaves is the next one's input.

    The model's thinking reaches only the parser for stop texts. It becomes reasoning, without its
    markers, if `thinking` keeps it apart from the answer; otherwise it is text. In a turn with
    stop texts, calls are not announced before they are complete: a stop text within a call leaves
    only text.
    """

    def __init__(
        self,
        turn: TurnParser | None,
        inline: InlineParser | ReactParser | None,
        stops: tuple[str, ...],
        thinking: Thinking,
        spelled: SpelledOpeners,
        formats: Iterable[CallFormat] = (),
        new_id: Callable[[], str] | None = None,
    ) -> None:
        """Create a reader for one turn in `formats`; `new_id` replaces the ids of its calls.

        A model that goes on behind its call invents the result. From the opener of a result on,
        the text of the turn is dropped.
        """
        self._results = [text.encode() for form in formats for text in form.results]
        self._turn = turn
        self._new_id = new_id
        self._ids: dict[str, str] = {}
        self._inline = inline
        self._thinking = thinking
        self._spelled = spelled
        self._window = b""
        self._token_ids: Sequence[int] = ()
        self._stop_cut = StopCut(stops)
        self._stops = StopText(stops)
        self._announces = not stops
        self._announced: list[CallStarted | ArgumentsDelta] = []
        self._cut = False
        self._at_stop = False
        self._over = False
        self._shown = ShownText(thinking.keeps_apart)
        self._in_reasoning = thinking.is_apart
        self._spans = Spans()
        self.invents_result = False
        """Whether the model has opened the result of its own call; what follows is dropped."""
        self.size_bytes = 0
        """The length of the output so far, up to a stop text."""
        self.raw = ""
        """The model's complete output so far, calls included."""
        self.calls: list[CallFinished | CallMalformed] = []
        """The calls of the turn so far, malformed ones included."""
        if thinking.is_apart:
            self._shown.enter()

    @property
    def text(self) -> str:
        """The turn's text shown so far, without calls and reasoning."""
        return self._shown.text

    @property
    def reasoning(self) -> str:
        """The turn's reasoning so far, if it is kept apart from the text."""
        return self._shown.reasoning

    @property
    def held_characters(self) -> int:
        """How many characters of the turn `end` reads at once, or a few more."""
        return 0 if self._turn is None else self._turn.held_characters

    def reasoning_tokens(self, sizes: Iterable[int], at: int) -> int:
        """Return how many tokens of reasoning there are among those of these lengths in bytes.

        The first of them begins where `size_bytes` was `at`.
        """
        own = 0 if self._turn is None else self._turn.reasoning_tokens
        return own or self._spans.tokens(sizes, at)

    @property
    def stop_text(self) -> str | None:
        """The stop text that ended the turn, whose tokens then hold more than `text`, or None."""
        return self._stop_cut.hit or self._stops.hit

    @property
    def is_whole(self) -> bool:
        """Whether the turn's tokens hold no stop text and no result that the model invented."""
        return self.stop_text is None and not self.invents_result

    def called_in_line(self, before: int) -> bool:
        """Return whether the last call stands in line, and is not among the first `before`.

        The engine may pause in line within what is read as a call of another format.
        """
        return len(self.calls) > before and self.calls[-1].inline

    def answer(self, content: str) -> str:
        """Return the text to insert for the result of the inline call that paused the turn."""
        assert self._inline is not None
        self._inline.overshoot += self._window.decode()
        self._window = b""
        self._thinking.passed_call()
        return self._inline.answer(content)

    def push(
        self,
        text: str,
        token_ids: Sequence[int],
        cut: bool = False,
        ended: bool = False,
        at_stop: bool = False,
    ) -> Iterator[Event]:
        """Parse more text of the turn and yield its events.

        `ended` means that the engine stopped with this text. `cut` means that it did so at the
        token limit. A call that ends here is then reported as malformed and not run. `at_stop`
        means that it stopped at a stop text. A call that is open there becomes text.
        """
        self._cut, self._at_stop = cut, at_stop
        self.raw += text
        self._token_ids = token_ids
        text = self._stop_cut.push(text, ended or cut or at_stop, at_stop)
        self.size_bytes += len(text.encode())
        data = self._spelled.push(text, token_ids).encode()
        if not self.invents_result:
            self._window += data
            yield from self._scan()

    def end(self) -> Iterator[Event]:
        """End the turn: yield the events of the text that was held back."""
        self._over, over = True, False
        while not over:
            yield from self._scan()
            again = yield from self._read(len(self._window))
            if not again and self._turn is not None:
                yield from self._chain(self._turn.end())
                self._window = self._turn.take_unread()
            over = not self._window
        if self._inline is not None:
            yield from self._pass_on(self._inline.end())
        yield from self._show(self._stops.end())
        yield from self._shown.flush()

    def message(self) -> Message:
        """Return the turn as an assistant message with all its calls."""
        calls = [
            {
                "id": call.call_id,
                "type": "function",
                "function": {
                    "name": call.name or "unknown",
                    "arguments": call.arguments if isinstance(call, CallFinished) else "{}",
                },
            }
            for call in self.calls
            if not call.inline
        ]
        message: dict[str, object] = {"role": "assistant", "content": self.text}
        if self.reasoning:
            message["reasoning"] = self.reasoning
        if calls:
            message["tool_calls"] = calls
        elif any(call.inline for call in self.calls):
            message["content"] = self._raw_answer()
        return message

    def _raw_answer(self) -> str:
        """Return the output with its in-line calls, without reasoning that is kept apart."""
        if not self.reasoning:
            return self.raw
        return without_thinking(self.raw.encode(), [REACT]).decode()

    def _scan(self) -> Iterator[Event]:
        """Parse the window, except for bytes that may still become a marker."""
        while not self.invents_result:
            results = [] if self._thinking.inside else self._results
            hit = self._thinking.next(self._window)
            result = first_hit(self._window, results)
            if result is not None and (hit is None or result.start < hit.start):
                again = yield from self._read(result.start)
                if not again:
                    yield from self._read_result()
                continue
            kept = max(self._thinking.held_back(self._window), held_back(self._window, results))
            again = yield from self._read(hit.start if hit else len(self._window) - kept)
            if hit is not None and not again:
                yield from self._read_marker(hit)
            elif not again:
                return

    def _read(self, size: int) -> Generator[Event, None, bool]:
        """Parse `size` bytes of the window; return whether a parser returned some as unread."""
        at = self.size_bytes - len(unmarked(self._window))
        data, self._window = self._window[:size], self._window[size:]
        token_ids, self._token_ids = self._token_ids, ()
        if self._thinking.is_apart:
            self._thinking.passed(data)
            data = unmarked(data)
            self._spans.add(at, at + len(data))
            yield from self._pass_on(iter([ReasoningDelta(data.decode())]))
        elif self._thinking.inside or self._turn is None:
            parse = self._pass_on if self._thinking.inside else self._chain
            self._thinking.passed(data)
            yield from parse(iter([TextDelta(unmarked(data).decode())]))
        elif data or token_ids:
            self._thinking.passed(data)
            yield from self._chain(self._turn.push(data.decode(), token_ids))
            unread = self._turn.take_unread()
            self._window = unread + self._window
            return bool(unread)
        return False

    def _in_call(self) -> bool:
        """Return whether a call is open; a call that has just ended makes the line blank."""
        if self._turn is not None and self._turn.behind_call:
            self._thinking.passed_call()
        inline = self._inline is not None and self._inline.in_call
        return inline or (self._turn is not None and self._turn.in_call)

    def _read_result(self) -> Iterator[Event]:
        """Drop the window, which begins with the opener of a result, if it follows a call."""
        in_call = self._in_call()
        called = any(not call.inline for call in self.calls)
        if in_call or not called or not self._thinking.blank:
            yield from self._read(1)
            return
        self.invents_result, self._window = True, b""

    def _read_marker(self, hit: Hit) -> Iterator[Event]:
        """Consume the marker at the window's begin; if it does not apply, consume one byte."""
        in_call = self._in_call()
        was_apart = self._thinking.is_apart
        if in_call or not self._thinking.pass_marker(hit):
            yield from self._read(1)
            return
        if self._turn is not None and self._thinking.inside:
            yield from self._chain(self._turn.end())
        if self._inline is not None and self._thinking.inside:
            yield from self._pass_on(self._inline.end())
        size = hit.end - hit.start
        marker, self._window = self._window[:size], self._window[size:]
        if was_apart or self._thinking.is_apart:
            yield from self._turn_to(reasoning=self._thinking.is_apart)
        else:
            yield from self._pass_on(iter([TextDelta(marker.decode())]))

    def _chain(self, events: Iterator[Event]) -> Iterator[Event]:
        for event in events:
            if isinstance(event, TextDelta) and self._inline is not None:
                yield from self._pass_on(self._inline.push(event.text))
            else:
                yield from self._pass_on(iter([event]))

    def _pass_on(self, events: Iterator[Event]) -> Iterator[Event]:
        for event in events:
            if isinstance(event, TextDelta | ReasoningDelta):
                yield from self._turn_to(reasoning=isinstance(event, ReasoningDelta))
                yield from self._show(self._stops.push(event.text))
                continue
            event = self._named(event)
            if isinstance(event, CallFinished | CallMalformed):
                yield from self._settle(_refused(event) if self._cut else event)
            elif self._announces:
                yield from self._shown.flush()
                yield event
            elif isinstance(event, CallStarted | ArgumentsDelta):
                self._announced.append(event)

    def _named(self, event: Event) -> Event:
        """Return an event of a call with the id that the call has for others."""
        if self._new_id is None or not isinstance(event, CallEvent):
            return event
        if event.call_id not in self._ids:
            self._ids[event.call_id] = self._new_id()
        return replace(event, call_id=self._ids[event.call_id])

    def _settle(self, call: CallFinished | CallMalformed) -> Iterator[Event]:
        """Yield a call that has ended, or its text if a stop text ended the turn within it."""
        announced = [event for event in self._announced if event.call_id == call.call_id]
        self._announced = [event for event in self._announced if event.call_id != call.call_id]
        if self._over and self._at_stop and isinstance(call, CallMalformed):
            yield from self._show(self._stops.push(call.text))
            return
        self.calls.append(call)
        yield from self._shown.flush()
        yield from announced
        yield call

    def _turn_to(self, *, reasoning: bool) -> Iterator[Event]:
        """Let what follows be reasoning or not, and show what was held back before."""
        if reasoning != self._in_reasoning:
            yield from self._show(self._stops.end())
            self._in_reasoning = reasoning
            if reasoning:
                self._shown.enter()
            else:
                self._shown.leave()

    def _show(self, text: str) -> Iterator[Event]:
        return self._shown.think(text) if self._in_reasoning else self._shown.answer(text)


def _refused(call: CallFinished | CallMalformed) -> CallMalformed:
    """Return the event for a call cut by the token limit, whose result no model would read."""
    if isinstance(call, CallMalformed):
        return call
    reason = "the token limit cut the turn, so the call was not run; raise max_tokens"
    return CallMalformed(call.call_id, call.name, call.arguments, reason, call.inline)


class StopCut:
    """Ends the model's output before the stop text at which the engine has stopped it.

    This happens before any parser reads the output: a stop text may open a call, or end the turn
    within one. Only the engine knows which stop texts count, so others pass.
    """

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = [text.encode() for text in stops]
        self._window = b""
        self.hit: str | None = None
        """The stop text that ended the output."""

    def push(self, text: str, ended: bool, at_stop: bool) -> str:
        """Return the output that cannot belong to a stop text.

        `ended`: the output ends with this text. `at_stop`: a stop text has ended it.
        """
        self._window += text.encode()
        size = len(self._window)
        found = first_hit(self._window, self._stops) if at_stop else None
        if found is not None:
            size, ended = found.start, True
            self.hit = self._stops[found.marker].decode()
        elif not ended:
            size -= held_back(self._window, self._stops)
        ready, self._window = self._window[:size], b"" if ended else self._window[size:]
        return ready.decode()


class StopText:
    """Returns visible text up to the first stop text, and holds back what may become one."""

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = [text.encode() for text in stops]
        self._window = b""
        self.hit: str | None = None
        """The stop text that was found."""

    def push(self, text: str) -> str:
        """Return the part of the text that cannot belong to a stop text."""
        if self.hit is not None or not self._stops:
            return text if self.hit is None else ""
        self._window += text.encode()
        found = first_hit(self._window, self._stops)
        if found is not None:
            self.hit = self._stops[found.marker].decode()
            return self._window[: found.start].decode()
        kept = held_back(self._window, self._stops)
        ready = self._window[: len(self._window) - kept]
        self._window = self._window[len(ready) :]
        return ready.decode()

    def end(self) -> str:
        """Return the text that was held back, at the end of the turn."""
        text, self._window = self._window, b""
        return text.decode() if self.hit is None else ""
