"""The grammars of a session's turns.

vLLM 0.32 and 0.33 compile the grammar of each chunk of a session, and then drop it: the grammar of
the first chunk constrains all later turns. Here each turn has the grammar of its own chunk.
"""

import logging
from collections import deque

from vllm.v1.request import Request

from caesura.scheduler.vllm.engine_state.grammars import (
    Grammar,
    constrain_from_start,
    grammar_of,
    read_first,
    use_grammar,
)
from caesura.scheduler.vllm.engine_state.requests import replayed_tokens
from caesura.scheduler.vllm.wire import WHOLE_TURN_KEY

logger = logging.getLogger(__name__)


class TurnGrammars:
    """Keeps the grammars of chunks that have arrived until their turns begin."""

    def __init__(self) -> None:
        self._next: dict[str, deque[Grammar | None]] = {}

    def begin(self, request: Request) -> None:
        """Prepare the grammar of a new request, if it has one.

        A turn that another engine began has tokens that the grammar reads first.
        """
        grammar = _taken(request)
        if grammar is None:
            return
        try:
            tokens = replayed_tokens(request)
        except ValueError as error:
            logger.warning("the grammar of request %s reads nothing: %s", request.request_id, error)
            return
        if tokens:
            read_first(grammar, request.request_id, tokens)

    def arrived(self, chunk: Request) -> None:
        """Keep the grammar of a session's next chunk; vLLM applies chunks in order of arrival."""
        if chunk.resumable:
            self._next.setdefault(chunk.request_id, deque()).append(_taken(chunk))

    def apply(self, session: Request) -> None:
        """Constrain a session's next turn as its chunk asks, after the chunk was appended.

        A chunk that never arrived here, as in vLLM's own tests, leaves the grammar as vLLM does.
        """
        if arrived := self._next.get(session.request_id):
            use_grammar(session, arrived.popleft())

    def forget(self, request_id: str) -> None:
        """Forget the chunks of a request that is about to be freed."""
        self._next.pop(request_id, None)


def _taken(request: Request) -> Grammar | None:
    grammar, params = grammar_of(request), request.sampling_params
    extra_args = params.extra_args if params is not None else None
    if grammar is not None and extra_args and extra_args.get(WHOLE_TURN_KEY):
        constrain_from_start(grammar)
    return grammar
