"""Parser for the turns of gpt-oss, which have channels, by vLLM's Harmony parser."""

from collections.abc import Iterator, Sequence
from typing import Any

from caesura.intercept.calls.events import Event, ReasoningDelta, TextDelta
from caesura.intercept.calls.formats import HARMONY
from caesura.scheduler.vllm.client.parsing.calls import (
    UNCLOSED,
    UNREADABLE,
    CallEvents,
    Found,
    Piece,
    json_of,
)
from caesura.scheduler.vllm.client.parsing.turn import TurnParser


class HarmonyTurn(TurnParser):
    """Parses one turn from token ids: the answer and preambles are text, the analysis reasoning."""

    def __init__(self, tokenizer: Any, *, reads_calls: bool = True) -> None:
        """Create a parser; unless it `reads_calls`, what a call holds is text.

        Raises `ValueError` if the vocabulary is missing or does not fit.
        """
        # A late import, since it loads the grammar library, which no other format needs.
        from vllm.entrypoints.openai.parser import harmony_utils
        from vllm.parser.harmony import HarmonyParser

        try:
            calls = harmony_utils.get_encoding().encode("<|call|>", allowed_special="all")
        except Exception as error:
            raise ValueError(f"the vocabulary of gpt-oss cannot be loaded: {error}") from error
        if tokenizer.convert_tokens_to_ids("<|call|>") != calls[0]:
            raise ValueError("the model does not write harmony calls: its tokens differ")
        self._reads_calls = reads_calls
        self._is_function = harmony_utils.is_function_recipient
        self._name = harmony_utils.extract_function_from_recipient
        self._parser = HarmonyParser(tokenizer)
        self._return = tokenizer.convert_tokens_to_ids("<|return|>")
        self._events = CallEvents(HARMONY.shape, verbatim=False)

    def push(self, text: str, token_ids: Sequence[int]) -> Iterator[Event]:
        """Parse more of the turn and yield its events."""
        # The token that ends a turn also ends its message, but it does not close a call.
        ids = [token_id for token_id in token_ids if token_id != self._return]
        for segment in self._parser.process_chunk(ids).segments:
            yield from self._read(segment)

    def end(self) -> Iterator[Event]:
        """End the turn: refuse a call that is still open."""
        for segment in self._parser.flush():
            yield from self._read(segment, closed=False)

    def _read(self, segment: Any, closed: bool = True) -> Iterator[Event]:
        message = segment.completed_message
        channel, recipient = segment.channel, segment.recipient
        if message is not None:
            channel, recipient = message.channel, message.recipient
        if recipient is not None and not self._reads_calls:
            if segment.delta:
                yield TextDelta(segment.delta)
        elif recipient is not None and self._is_function(recipient):
            name = self._name(recipient)
            if message is None:
                yield from self._events.announce([Piece(0, name, segment.delta)])
            else:
                text = "".join(part.text for part in message.content)
                yield from self._settle(name, text, closed)
        elif recipient is not None and message is not None:
            # This is a call of a built-in tool of gpt-oss, for which the engine has paused.
            text = "".join(part.text for part in message.content)
            yield self._events.malformed(text, recipient, f"there is no tool {recipient!r} here")
        elif segment.delta and (channel == "final" or (channel == "commentary" and not recipient)):
            yield TextDelta(segment.delta)
        elif segment.delta and channel == "analysis" and not recipient:
            self.reasoning_tokens += 1  # a segment is what one token adds
            yield ReasoningDelta(segment.delta)

    def _settle(self, name: str, text: str, closed: bool) -> Iterator[Event]:
        whole = text if text.strip() else "{}"
        readable = closed and isinstance(json_of(whole), dict)
        found = [Found(name, whole)] if readable else []
        reason = UNREADABLE if closed else UNCLOSED
        if found or self._events.announced:
            yield from self._events.settle(found, text, reason)
        else:
            yield self._events.malformed(text, name, reason)
