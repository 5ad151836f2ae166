"""Which calls a model has made: watches over token streams, and calls found in what was decoded."""

import logging
import re
from collections.abc import Mapping, Sequence

from vllm.config import VllmConfig
from vllm.tokenizers import cached_tokenizer_from_config
from vllm.v1.request import Request

from caesura.intercept.calls.formats import INLINE, CallFormat, resolve
from caesura.intercept.calls.vocabulary import Vocabulary
from caesura.intercept.calls.watch import Watch, WatchPlan
from caesura.intercept.pause_hints import PauseHint, slowest
from caesura.scheduler.vllm.tokenizer import format_names, vocabulary_from
from caesura.scheduler.vllm.wire import WATCH_KEY

logger = logging.getLogger(__name__)

MOST_TOKENS = 4096
"""How far back a call is looked for; a call that is longer is one of an unknown tool."""


class CallDetector:
    """Makes watches. The vocabulary is read at the first request that needs it.

    A request with a bad plan runs unwatched, and the log says why: an exception here would take
    the whole engine down with it.
    """

    def __init__(
        self,
        vllm_config: VllmConfig,
        vocabulary: Vocabulary | None = None,
        formats: tuple[CallFormat, ...] | None = None,
    ) -> None:
        """`vocabulary` and `formats` stand in for those of the served model's tokenizer."""
        self._model_config = vllm_config.model_config
        self._vocabulary = vocabulary
        self._formats = formats

    def called(self, request: Request, watch: Watch | None) -> tuple[bool, str | None]:
        """Tell whether a request's output holds a call, and of which tool if that shows.

        Without a watch the model's chat template says how its calls are written.
        """
        if self._model_config.skip_tokenizer_init and self._vocabulary is None:
            return False, None
        formats = watch.formats if watch is not None else self._load_formats()
        if not formats:
            return False, None
        return find_call(request.output_token_ids, self._load_vocabulary(), formats)

    def waits_for(self, request: Request, watch: Watch) -> tuple[str | None, PauseHint | None]:
        """Name what a request that paused at a call waits for, with a hint if there is one."""
        _, tool = self.called(request, watch)
        if not watch.pauses or self._vocabulary is None:
            return tool, None
        tokens, formats = request.output_token_ids, watch.formats
        return hinted(tool, tokens, self._vocabulary, formats, watch.pauses)

    def watch_for(self, request: Request) -> Watch | None:
        """Return the watch that the request's sampling parameters ask for, or None."""
        params = request.sampling_params
        plan_data = (params.extra_args or {}).get(WATCH_KEY) if params is not None else None
        if plan_data is None or params is None:
            return None
        try:
            ends = {*(params.stop_token_ids or ()), params.eos_token_id} - {None}
            return Watch(WatchPlan.from_wire(plan_data), self._load_vocabulary(), frozenset(ends))
        except Exception as error:
            logger.warning("request %s is not watched for calls: %s", request.request_id, error)
            return None

    def _load_vocabulary(self) -> Vocabulary:
        """Return the bytes of the model's tokens; no token has any if they cannot be read."""
        if self._vocabulary is None:
            try:
                self._vocabulary = vocabulary_from(cached_tokenizer_from_config(self._model_config))
            except Exception:
                logger.exception("the tokens of this model cannot be read: no call is seen")
                self._vocabulary = Vocabulary([])
        return self._vocabulary

    def _load_formats(self) -> tuple[CallFormat, ...]:
        """Return the formats in which the model writes whole turns of calls."""
        if self._formats is None:
            try:
                names = format_names(cached_tokenizer_from_config(self._model_config))
            except Exception:
                logger.exception("the tokenizer of this model cannot be read: no call is seen")
                names = ()
            self._formats = resolve((name for name in names if name != INLINE), ())
        return self._formats


def find_call(
    tokens: Sequence[int], vocabulary: Vocabulary, formats: Sequence[CallFormat]
) -> tuple[bool, str | None]:
    """Return whether the tokens hold a call, and the name of the last one's tool if it shows."""
    text = b"".join(vocabulary.bytes_of(token) for token in tokens[-MOST_TOKENS:])
    at, start, named = -1, -1, ""
    for form in formats:
        found = max((text.rfind(opener.encode()) for opener in form.opens), default=-1)
        if any(text.lstrip().startswith(anchor.encode()) for anchor in form.anchors):
            found = max(found, 0)
        if found > at:
            # Where a call is a line, the name stands in the one above.
            start = text.rfind(b"\n", 0, found) + 1 if form.body == "line" else found
            at, named = found, form.named
    if at < 0:
        return False, None
    return True, tool_named_in(text[start : at + 512], named)


def tool_named_in(call: bytes, named: str) -> str | None:
    """Find the tool's name in the text of a call, from its opener on; `named` is a pattern."""
    found = re.search(named, call.decode(errors="replace")) if named else None
    return next((name for name in found.groups() if name), None) if found else None


def hinted(
    tool: str | None,
    tokens: Sequence[int],
    vocabulary: Vocabulary,
    formats: Sequence[CallFormat],
    pauses: Mapping[str, PauseHint],
) -> tuple[str | None, PauseHint | None]:
    """Return the name under which the pause is learned, and the hint for it.

    `tool` is the one that was called last; of several calls in one turn, one that waits for a
    person decides how long the turn does.
    """
    if any(hint.person for hint in pauses.values()):
        data = b"".join(vocabulary.bytes_of(token) for token in tokens[-MOST_TOKENS:])
        text = data.decode(errors="replace")
        tool = slowest(_names_in(text, formats), pauses) or tool
    hint = pauses.get(tool) if tool is not None else None
    return (tool, None) if hint is None or tool is None else (hint.key(tool), hint)


def _names_in(text: str, formats: Sequence[CallFormat]) -> set[str]:
    """Return what stands where the formats write a name; some of it may be something else."""
    found = (match for form in formats if form.named for match in re.finditer(form.named, text))
    return {name for match in found for name in match.groups() if name}
