"""Reading one turn of the model: calls of a turn, calls in mid sentence, stop texts, text."""

from collections.abc import Iterator, Sequence

from caesura.intercept.events import CallFinished, CallMalformed, Event, TextDelta
from caesura.intercept.inline import InlineParser
from caesura.intercept.react import ReactParser
from caesura.scheduler.messages import Message
from caesura.scheduler.vllm.client.parsing import TurnParser
from caesura.scheduler.vllm.client.stops import StopText


class TurnReader:
    """Chains the parsers of a turn: what one leaves as text is the next one's input."""

    def __init__(
        self,
        turn: TurnParser | None,
        inline: InlineParser | ReactParser | None,
        stops: tuple[str, ...],
    ) -> None:
        self._turn = turn
        self._inline = inline
        self._stops = StopText(stops)
        self._cut = False
        self.text = ""
        """What the reader has seen of the turn."""
        self.raw = ""
        """What the model wrote, calls and all."""
        self.calls: list[CallFinished | CallMalformed] = []
        """Calls of the turn so far, those that are no good included."""

    def answer(self, content: str) -> str:
        """Return the text that answers the call in mid sentence at which the turn has paused."""
        assert self._inline is not None
        return self._inline.answer(content)

    def push(self, text: str, token_ids: Sequence[int], cut: bool = False) -> Iterator[Event]:
        """Read more of the turn.

        `cut`: with this text the token limit cut the turn, so that no call that ends here is run.
        """
        self._cut = cut
        self.raw += text
        events = iter([TextDelta(text)]) if self._turn is None else self._turn.push(text, token_ids)
        yield from self._chain(events)

    def end(self) -> Iterator[Event]:
        """The turn is over: let go of what was held back."""
        if self._turn is not None:
            yield from self._chain(self._turn.end())
        if self._inline is not None:
            yield from self._pass_on(self._inline.end())
        yield from self._show(self._stops.end())

    def message(self) -> Message:
        """The turn as an assistant message, with every call of it."""
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
        if calls:
            message["tool_calls"] = calls
        elif any(call.inline for call in self.calls):
            message["content"] = self.raw
        return message

    def _chain(self, events: Iterator[Event]) -> Iterator[Event]:
        for event in events:
            if isinstance(event, TextDelta) and self._inline is not None:
                yield from self._pass_on(self._inline.push(event.text))
            else:
                yield from self._pass_on(iter([event]))

    def _pass_on(self, events: Iterator[Event]) -> Iterator[Event]:
        for event in events:
            if isinstance(event, TextDelta):
                yield from self._show(self._stops.push(event.text))
                continue
            if self._cut and isinstance(event, CallFinished):
                event = _refused(event)
            if isinstance(event, CallFinished | CallMalformed):
                self.calls.append(event)
            yield event

    def _show(self, text: str) -> Iterator[Event]:
        if text:
            self.text += text
            yield TextDelta(text)


def _refused(call: CallFinished) -> CallMalformed:
    """Return a call that ended as the token limit was met; its result would reach no model."""
    reason = "the token limit cut the turn, so the call was not run; raise max_tokens"
    return CallMalformed(call.call_id, call.name, call.arguments, reason, call.inline)
