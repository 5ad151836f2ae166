"""Calls in the tokens of requests: watches over streams, stops, and a search in decoded tokens.

A watch examines the request's tokens one by one. A turn that ends without a call finishes the
request at once. vLLM would keep the session and its blocks until the client closes its input.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from vllm.config import VllmConfig
from vllm.tokenizers import cached_tokenizer_from_config
from vllm.v1.engine import EngineCoreOutputs
from vllm.v1.request import Request

from caesura.intercept.calls.events import ResumeReport
from caesura.intercept.calls.formats import INLINE, CallFormat, resolve
from caesura.intercept.calls.mentions import TurnBegin
from caesura.intercept.calls.thinking import without_thinking
from caesura.intercept.calls.vocabulary import Vocabulary
from caesura.intercept.calls.watch import Call, Verdict, Watch, WatchPlan
from caesura.scheduler.vllm.engine.port.requests import (
    has_next_chunk,
    has_stopped,
    replayed_tokens,
    takes_chunks,
)
from caesura.scheduler.vllm.engine.sessions.served import Served, ServedRequests
from caesura.scheduler.vllm.tokenizer import format_names, template_of, vocabulary_from
from caesura.scheduler.vllm.wire import REPORT_KEY, WATCH_KEY

logger = logging.getLogger(__name__)


MAX_TOKENS = 4096
"""Number of last tokens that are searched for a call of an unwatched request."""


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

    def called(self, request: Request, watch: Watch | None) -> Call | None:
        """Return the last call of a request's turn, or None if it holds none.

        A watch has read it. Without one, the output is searched for the formats of calls that the
        model's chat template shows.
        """
        if watch is not None:
            return watch.calls[-1] if watch.calls else None
        if self._model_config.skip_tokenizer_init and self._vocabulary is None:
            return None
        formats = self._load_formats()
        if not formats:
            return None
        return find_call(request.output_token_ids, self._load_vocabulary(), formats)

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


def find_call(
    tokens: Sequence[int], vocabulary: Vocabulary, formats: Sequence[CallFormat]
) -> Call | None:
    """Return the last call in the tokens, or None if they hold none."""
    text = _text_of(tokens, vocabulary, formats)
    at, start, found_form = -1, -1, None
    for form in formats:
        found = max((text.rfind(opener.encode()) for opener in form.opens), default=-1)
        if TurnBegin([form], ()).is_call(text):
            found = max(found, 0)
        if found > at:
            # Where a call is written as lines, the label before the last one has the tool's name.
            line = form.body == "line"
            labels = (text.rfind(opener.encode(), 0, found) for opener in form.opens)
            start = max(0, *labels) if line else found
            at, found_form = found, form
    return Call(found_form, bytearray(text[start:])) if found_form is not None else None


def _text_of(tokens: Sequence[int], vocabulary: Vocabulary, formats: Sequence[CallFormat]) -> bytes:
    """Return the text of the last `MAX_TOKENS` tokens, without thinking, which holds no call."""
    data = b"".join(vocabulary.bytes_of(token) for token in tokens[-MAX_TOKENS:])
    return without_thinking(data, formats)


class CallStops:
    """Watches the requests of one scheduler, and keeps the reports of stops for the clients."""

    def __init__(self, detector: CallDetector, served: ServedRequests) -> None:
        self._detector = detector
        self._served = served
        self._reports: dict[str, dict[str, Any]] = {}
        """The reports of this step, also of requests that ended in it."""
        self.closing: set[str] = set()
        """Ids of ended sessions whose client has not closed its input yet."""

    def watch(self, served: Served) -> None:
        """Attach the watch that the request's parameters ask for, for a new turn."""
        served.watch = self._detector.watch_for(served.request)

    def is_goodbye(self, request_id: str) -> bool:
        """Return, once per session, whether a chunk only closes the input of an ended session."""
        if request_id not in self.closing:
            return False
        self.closing.discard(request_id)
        return True

    def cut_soon(self, name: str, tokens: int) -> bool:
        """Cut the turn of a request at the next safe place; return whether one is under way.

        `name` is the client's id of the request, or the engine's own. The place is safe in the
        sense of `Watch.cut_soon`, which takes the number of tokens.
        """
        served = self._served.find(name)
        if served is None or served.watch is None or served.pause is not None:
            return False
        if not takes_chunks(served.request):
            return False
        served.watch.cut_soon(tokens)
        return True

    def aborted(self, request_ids: Iterable[str] | None) -> None:
        """Forget aborted requests (None: all requests), whose clients send no closing chunk."""
        if request_ids is None:
            self.closing.clear()
        else:
            self.closing.difference_update(request_ids)

    def cut(self, request: Request, new_tokens: list[int]) -> bool:
        """Remove the new tokens after the watch's stop; return whether there is a stop."""
        served = self._served.get(request.request_id)
        if served is None or served.watch is None:
            return False
        found = served.watch.first_stop(new_tokens)
        if found is None:
            return False
        del new_tokens[found[0] + 1 :]
        served.verdict = found[1]
        return True

    def ends(self, served: Served) -> bool:
        """Return whether a stopped, watched request has ended, since its turn holds no call."""
        request, resumed, served.resumed = served.request, served.resumed, None
        if served.watch is None:
            return False
        report = self._report(served, resumed)
        if report["paused"] or has_next_chunk(request):
            return False
        if takes_chunks(request):
            self.closing.add(request.request_id)
        return True

    def _report(self, served: Served, resumed: ResumeReport | None) -> dict[str, Any]:
        """Return the report that the client receives with the turn's last token, and store it."""
        request, verdict, served.verdict = served.request, served.verdict, None
        called = verdict in (Verdict.CALL, Verdict.CUT) and has_stopped(request)
        report = {
            "paused": called and request.resumable,
            "verdict": verdict.value if verdict is not None else None,
            "resume": asdict(resumed) if resumed is not None else None,
        }
        self._reports[request.request_id] = report
        return report

    def attach(self, outputs: dict[int, EngineCoreOutputs]) -> None:
        """Attach the reports to the last outputs of the turns."""
        if not self._reports:
            return
        for of_client in outputs.values():
            for output in of_client.outputs:
                if output.finish_reason is not None and output.request_id in self._reports:
                    report = {REPORT_KEY: self._reports[output.request_id]}
                    output.kv_transfer_params = {**(output.kv_transfer_params or {}), **report}
        self._reports.clear()
