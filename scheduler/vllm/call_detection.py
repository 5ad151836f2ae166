"""Detection of tool calls: watches over token streams, and a search in decoded tokens."""

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from vllm.config import VllmConfig
from vllm.tokenizers import cached_tokenizer_from_config
from vllm.v1.request import Request

from caesura.intercept.calls.formats import INLINE, CallFormat, resolve
from caesura.intercept.calls.mentions import TurnBegin
from caesura.intercept.calls.thinking import without_thinking
from caesura.intercept.calls.vocabulary import Vocabulary
from caesura.intercept.calls.watch import Watch, WatchPlan
from caesura.intercept.pause_hints import PauseHint, slowest
from caesura.scheduler.vllm.engine_state.requests import replayed_tokens
from caesura.scheduler.vllm.tokenizer import format_names, template_of, vocabulary_from
from caesura.scheduler.vllm.wire import WATCH_KEY

logger = logging.getLogger(__name__)

MAX_TOKENS = 4096
"""Number of last tokens that are searched for a call; a longer call's tool is unknown."""


@dataclass(frozen=True, slots=True)
class FoundCall:
    """A call in decoded tokens: its tool, if the name was found, and its text from its opener."""

    tool: str | None
    text: bytes


class CallDetector:
    """Creates watches, and reads the vocabulary at the first request that needs it.

    A request with an invalid plan runs unwatched, and the log says why. An exception here would
    stop the whole engine.
    """

    def __init__(
        self,
        vllm_config: VllmConfig,
        vocabulary: Vocabulary | None = None,
        formats: tuple[CallFormat, ...] | None = None,
        format_names: Sequence[str] | None = None,
    ) -> None:
        """Create it; `vocabulary` and `formats` replace those of the model's tokenizer.

        So do formats by `format_names`, where no `formats` are given.
        """
        self._model_config = vllm_config.model_config
        self._vocabulary = vocabulary
        self._formats = formats
        self._format_names = format_names

    def called(self, request: Request, watch: Watch | None) -> FoundCall | None:
        """Return the last call in a request's output, or None if it holds none.

        Without a watch, the model's chat template determines the format of calls.
        """
        if self._model_config.skip_tokenizer_init and self._vocabulary is None:
            return None
        formats = watch.formats if watch is not None else self._load_formats()
        if not formats:
            return None
        return find_call(_turn_of(request, watch), self._load_vocabulary(), formats)

    def waits_for(
        self, request: Request, watch: Watch
    ) -> tuple[FoundCall | None, PauseHint | None]:
        """Return the call that a paused request waits for, and the client's hint, if any."""
        call = self.called(request, watch)
        if not watch.pauses or self._vocabulary is None or call is None:
            return call, None
        tokens, formats = _turn_of(request, watch), watch.formats
        tool, hint = hinted(call.tool, tokens, self._vocabulary, formats, watch.pauses)
        return replace(call, tool=tool), hint

    def text_of(self, tokens: Sequence[int]) -> bytes:
        """Return the text of tokens; empty without a tokenizer."""
        if self._model_config.skip_tokenizer_init and self._vocabulary is None:
            return b""
        vocabulary = self._load_vocabulary()
        return b"".join(vocabulary.bytes_of(token) for token in tokens)

    def watch_for(self, request: Request) -> Watch | None:
        """Return the watch that the request's sampling parameters ask for, or None."""
        params = request.sampling_params
        plan_data = (params.extra_args or {}).get(WATCH_KEY) if params is not None else None
        if plan_data is None or params is None:
            return None
        try:
            ends = {*(params.stop_token_ids or ()), params.eos_token_id} - {None}
            watch = Watch(WatchPlan.from_wire(plan_data), self._load_vocabulary(), frozenset(ends))
            watch.replay(replayed_tokens(request))
            return watch
        except Exception as error:
            logger.warning("request %s is not watched for calls: %s", request.request_id, error)
            return None

    def _load_vocabulary(self) -> Vocabulary:
        """Return the model's vocabulary, or an empty one if it cannot be read."""
        if self._vocabulary is None:
            try:
                self._vocabulary = vocabulary_from(cached_tokenizer_from_config(self._model_config))
            except Exception:
                logger.exception("cannot read this model's tokens, so calls are not detected")
                self._vocabulary = Vocabulary([])
        return self._vocabulary

    def _load_formats(self) -> tuple[CallFormat, ...]:
        """Return the formats in which the model writes whole turns of calls."""
        if self._formats is None:
            names = self._shown_formats() if self._format_names is None else self._format_names
            self._formats = resolve((name for name in names if name != INLINE), ())
        return self._formats

    def _shown_formats(self) -> Sequence[str]:
        """Return the names of the formats that the model's own chat template shows."""
        try:
            tokenizer = cached_tokenizer_from_config(self._model_config)
            return format_names(tokenizer, template_of(tokenizer))
        except Exception:
            logger.exception("cannot read this model's tokenizer, so calls are not detected")
            return ()


def _turn_of(request: Request, watch: Watch | None) -> Sequence[int]:
    """Return the tokens of the request's turn, also those that another engine has sampled."""
    if watch is None or not watch.replayed:
        return request.output_token_ids
    return [*watch.replayed, *request.output_token_ids]


def find_call(
    tokens: Sequence[int], vocabulary: Vocabulary, formats: Sequence[CallFormat]
) -> FoundCall | None:
    """Return the last call in the tokens, or None if they hold none."""
    text = _text_of(tokens, vocabulary, formats)
    at, start, named = -1, -1, ""
    for form in formats:
        found = max((text.rfind(opener.encode()) for opener in form.opens), default=-1)
        if TurnBegin([form], ()).is_call(text):
            found = max(found, 0)
        if found > at:
            # Where a call is written as lines, the label before the last one has the tool's name.
            line = form.body == "line"
            labels = (text.rfind(opener.encode(), 0, found) for opener in form.opens)
            start = max(0, *labels) if line else found
            at, named = found, form.named
    if at < 0:
        return None
    return FoundCall(tool_named_in(text[start : at + 512], named), text[start:])


def tool_named_in(call: bytes, named: str) -> str | None:
    """Return the tool's name in a call's text, by the pattern `named`, or None."""
    found = re.search(named, call.decode(errors="replace")) if named else None
    return next((name for name in found.groups() if name), None) if found else None


def hinted(
    tool: str | None,
    tokens: Sequence[int],
    vocabulary: Vocabulary,
    formats: Sequence[CallFormat],
    pauses: Mapping[str, PauseHint],
) -> tuple[str | None, PauseHint | None]:
    """Return the name under which the predictor learns the pause, and the hint for it.

    `tool` is the last one called. If a turn has several calls, one that waits for a person
    determines the duration of the pause.
    """
    if any(hint.person for hint in pauses.values()):
        text = _text_of(tokens, vocabulary, formats).decode(errors="replace")
        tool = slowest(_names_in(text, formats), pauses) or tool
    hint = pauses.get(tool) if tool is not None else None
    return (tool, None) if hint is None or tool is None else (hint.key(tool), hint)


def _text_of(tokens: Sequence[int], vocabulary: Vocabulary, formats: Sequence[CallFormat]) -> bytes:
    """Return the text of the last `MAX_TOKENS` tokens, without thinking, which holds no call."""
    data = b"".join(vocabulary.bytes_of(token) for token in tokens[-MAX_TOKENS:])
    return without_thinking(data, formats)


def _names_in(text: str, formats: Sequence[CallFormat]) -> set[str]:
    """Return the texts where the formats write a tool's name; some may not be names."""
    found = (match for form in formats if form.named for match in re.finditer(form.named, text))
    return {name for match in found for name in match.groups() if name}
