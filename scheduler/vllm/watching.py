"""Watches for requests that ask for one, over the served model's own vocabulary."""

import logging
from typing import Any

from vllm.config import VllmConfig
from vllm.tokenizers import cached_tokenizer_from_config
from vllm.v1.request import Request

from caesura.intercept.formats import CallFormat
from caesura.intercept.hint import PauseHint
from caesura.intercept.trigger import Watch, WatchPlan
from caesura.intercept.vocabulary import Vocabulary, vocabulary_of
from caesura.scheduler.vllm.calls import find_call, formats_of
from caesura.scheduler.vllm.hinted import hinted
from caesura.scheduler.vllm.wire import WATCH_KEY

logger = logging.getLogger(__name__)


def vocabulary_from(tokenizer: Any) -> Vocabulary:
    """Read the bytes of every token from a `transformers` tokenizer."""
    raw = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    added = {token_id: token.content for token_id, token in tokenizer.added_tokens_decoder.items()}
    backend = getattr(tokenizer, "backend_tokenizer", None)
    byte_level = backend is None or "ByteLevel" in str(backend.decoder)
    return vocabulary_of(raw, added, byte_level)


class Watcher:
    """Makes watches. The vocabulary is read at the first request that needs it.

    A request with a bad plan runs unwatched, and the log says why: an exception here would take
    the whole engine down with it.
    """

    def __init__(self, vllm_config: VllmConfig) -> None:
        self._model_config = vllm_config.model_config
        self._vocabulary: Vocabulary | None = None
        self._formats: tuple[CallFormat, ...] | None = None

    def called(self, request: Request, watch: Watch | None) -> tuple[bool, str | None]:
        """Tell whether a request's output holds a call, and of which tool if that shows.

        Without a watch the model's chat template says how its calls are written.
        """
        if self._model_config.skip_tokenizer_init and self._vocabulary is None:
            return False, None
        if watch is not None:
            formats = watch.formats
        elif self._formats is None:
            tokenizer = cached_tokenizer_from_config(self._model_config)
            formats = self._formats = formats_of(tokenizer)
        else:
            formats = self._formats
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
        except (ValueError, OSError) as error:
            logger.warning("request %s is not watched for calls: %s", request.request_id, error)
            return None

    def _load_vocabulary(self) -> Vocabulary:
        if self._vocabulary is None:
            self._vocabulary = vocabulary_from(cached_tokenizer_from_config(self._model_config))
        return self._vocabulary
