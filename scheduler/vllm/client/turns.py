"""How a model writes its turns, and what a session makes for each: the watch plan, the reader."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

from caesura.intercept.calls.events import TurnKind
from caesura.intercept.calls.formats import INLINE, REACT, CallFormat, resolve, turn_format
from caesura.intercept.calls.inline import InlineParser
from caesura.intercept.calls.markers import SpelledOpeners
from caesura.intercept.calls.react import ReactParser
from caesura.intercept.calls.thinking import Thinking
from caesura.intercept.calls.vocabulary import Vocabulary
from caesura.intercept.calls.watch import WatchPlan
from caesura.scheduler.errors import UsageError
from caesura.scheduler.messages import Sampling, SessionSpec, ToolSpec, callable_tools
from caesura.scheduler.vllm.client.parsing import (
    TurnParser,
    channel_parser,
    new_call_id,
    turn_parser,
)
from caesura.scheduler.vllm.client.parsing.reader import TurnReader
from caesura.scheduler.vllm.client.rendering.tokens import TokenText
from caesura.scheduler.vllm.tokenizer import (
    check_vocabulary,
    reads_special_tokens,
    vocabulary_from,
    writes_bytes,
)
from caesura.scheduler.vllm.wire import WATCH_KEY


class Language:
    """How one model writes: its tokens, its formats of calls, its thinking."""

    def __init__(
        self,
        tokenizer: Any,
        formats: Sequence[str],
        ends: Collection[int],
        thinking: Sequence[str] = (),
        vocabulary: Vocabulary | None = None,
    ) -> None:
        """Create it for a model that writes calls in `formats`; the tokens `ends` end a turn.

        `thinking` are the openers of the regions of thinking that are kept apart from the answer.
        The `vocabulary` is needed for all formats of calls.
        """
        self.tokenizer = tokenizer
        self.formats = tuple(formats)
        self.ends = frozenset(ends)
        self.thinking = tuple(thinking)
        self.vocabulary = vocabulary
        """The bytes of all tokens, if the model's format of calls is known."""
        self._form = turn_format(self.formats)

    @property
    def reads_special_tokens(self) -> bool:
        """Whether calls or thinking are written with special tokens of the model."""
        return reads_special_tokens(self.tokenizer, self.formats)

    def check(self) -> None:
        """Read the vocabulary if it is needed; raise `UsageError` if the format does not fit."""
        if not self.formats and not writes_bytes(self.tokenizer):
            return
        try:
            self.turn_parser(())
            vocabulary = vocabulary_from(self.tokenizer)
            check_vocabulary(self.tokenizer, vocabulary)
        except ValueError as error:
            raise UsageError(str(error)) from error
        self.vocabulary = vocabulary

    def text_of(self, token_id: int) -> str:
        """Return the text of one token."""
        return str(self.tokenizer.decode([token_id]))

    def bytes_of(self, token_id: int) -> bytes:
        """Return the bytes that a token stands for."""
        if self.vocabulary is None:
            return self.text_of(token_id).encode()
        return self.vocabulary.bytes_of(token_id)

    def token_text(self) -> TokenText | None:
        """Return a decoder for the tokens of one turn, or None where vLLM's text is complete."""
        if self.vocabulary is None or not writes_bytes(self.tokenizer):
            return None
        return TokenText(self.vocabulary)

    def turn_parser(self, tools: Sequence[ToolSpec]) -> TurnParser | None:
        """Return a parser for the calls of one turn, or None without a turn-based format."""
        if self._form is None:
            return None
        return turn_parser(self._form, self.tokenizer, tools, self.vocabulary)

    def channel_parser(self) -> TurnParser | None:
        """Return a parser for a turn without calls, or None where the model has no channels."""
        return None if self._form is None else channel_parser(self._form, self.tokenizer)

    def spelled_openers(self, formats: Sequence[CallFormat]) -> SpelledOpeners:
        """Return what finds, in one turn, the openers that the model spells with other tokens."""
        return SpelledOpeners(formats, self.vocabulary)


class TurnMaker:
    """Makes the watch plans and readers of one session's turns."""

    def __init__(self, language: Language, spec: SessionSpec) -> None:
        """Create it for a session of `spec` with a model that writes in `language`."""
        self._language = language
        self._spec = spec
        self.watched = bool(spec.known_tools) and spec.tool_choice == "auto"
        """Whether the model may call tools, so that its turns are searched for calls."""
        self.pausing = spec.pausing and self.watched
        """Whether the request pauses at a call."""

    def watch(self, turn: TurnKind, sampling: Sampling, thinking: str) -> dict[str, Any] | None:
        """Return vLLM's `extra_args` with the plan of the engine's watch, or None without one.

        `thinking` is the marker of thinking after which the turn begins, or empty. Raises
        `UsageError` for more tools or stop texts than a plan holds.
        """
        formats = self._language.formats if self.pausing else ()
        if not formats and not sampling.stop:
            return None
        names = tuple(tool["function"]["name"] for tool in callable_tools(self._spec, sampling))
        try:
            about = (formats, names, sampling.stop, turn, self._spec.pauses, thinking)
            plan = WatchPlan(*about, spelled=_has_grammar(sampling))
        except ValueError as error:
            raise UsageError(f"too many tools or stop texts, send fewer: {error}") from error
        return {WATCH_KEY: plan.to_wire()}

    def reader(
        self, sampling: Sampling, opener: str, new_id: Callable[[], str] | None = None
    ) -> TurnReader:
        """Return a reader for a turn; it begins within thinking if `opener` is not empty.

        `new_id` makes the ids of its calls; without it they are random.
        """
        tools = callable_tools(self._spec, sampling)
        schemas = {
            tool["function"]["name"]: tool["function"].get("parameters") or {} for tool in tools
        }
        inline: InlineParser | ReactParser | None = None
        if self.pausing and {INLINE, REACT.name} & set(self._language.formats):
            made = InlineParser if INLINE in self._language.formats else ReactParser
            inline = made(schemas, new_call_id)
        parser = self._language.turn_parser(tools) if self.watched else None
        if not self.watched and not self._spec.prefill:
            parser = self._language.channel_parser()
        formats = resolve(self._language.formats if self.watched else (), schemas)
        thinking = Thinking(formats, opener, self._language.thinking)
        spelled = self._language.spelled_openers(() if _has_grammar(sampling) else formats)
        return TurnReader(parser, inline, sampling.stop, thinking, spelled, formats, new_id)


def _has_grammar(sampling: Sampling) -> bool:
    """Return whether a grammar may lead the model to spell an opener, which is then no mention."""
    return sampling.calls is not None or sampling.text is not None
