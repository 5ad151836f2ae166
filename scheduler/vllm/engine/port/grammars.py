"""The grammars of a session's turns, which vLLM compiles while a request waits.

vLLM 0.32 and 0.33 compile the grammar of each chunk of a session, and then drop it: the grammar of
the first chunk constrains all later turns. Here each turn has the grammar of its own chunk.
"""

import logging
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, TypeAlias

from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output.request import StructuredOutputRequest

from caesura.scheduler.vllm.engine.port.requests import replayed_tokens
from caesura.scheduler.vllm.wire import WHOLE_TURN_KEY

logger = logging.getLogger(__name__)


Grammar: TypeAlias = StructuredOutputRequest
"""A grammar and its compilation. Code outside this folder only passes it on."""


def grammar_of(request: Request) -> Grammar | None:
    """Return the grammar that a new request or a chunk brings, or None without one."""
    return request.structured_output_request


def use_grammar(session: Request, grammar: Grammar | None) -> None:
    """Constrain a session's next turn by `grammar`, and by none of an earlier turn.

    The session waits for its admission until the grammar is compiled.
    """
    session.structured_output_request = grammar
    if grammar is None:
        return
    # vLLM itself ends the wait, or fails the request if its grammar did not compile.
    session.status = RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
    # A step in flight may still belong to the turn before. Its tokens are dropped, and vLLM must
    # not ask this grammar, which may not be compiled yet, for a mask of them.
    session.is_prefill_chunk = True


def constrain_from_start(grammar: Grammar) -> None:
    """Apply the grammar from the turn's first token, since it covers the thinking itself.

    Otherwise vLLM would look for the end of thinking in all turns of the session.
    """
    grammar.reasoning_ended = True


def read_first(grammar: Grammar, request_id: str, tokens: Sequence[int]) -> None:
    """Let a grammar read the tokens that its turn begins with, as soon as it is compiled.

    A grammar that refuses them fails its request, as one does that does not compile.
    """

    def behind(compiled: Any) -> Any:
        if not compiled.accept_tokens(request_id, list(tokens)):
            raise ValueError("the grammar refuses what the turn holds already")
        return compiled

    behind_them: Future[Any] = Future()

    def read(compiled: Future[Any]) -> None:
        try:
            behind_them.set_result(behind(compiled.result()))
        except Exception as error:
            behind_them.set_exception(error)

    compiling: Any = grammar._grammar
    if isinstance(compiling, Future):
        compiling.add_done_callback(read)
    else:
        ready: Future[Any] = Future()
        ready.set_result(compiling)
        read(ready)
    grammar.grammar = behind_them


class TurnGrammars:
    """Keeps the grammars of one session's chunks that have arrived, until their turns begin."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next: deque[Grammar | None] | None = None

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
            self._next = self._next or deque()
            self._next.append(_taken(chunk))

    def apply(self, session: Request) -> None:
        """Constrain a session's next turn as its chunk asks, after the chunk was appended.

        A chunk that never arrived here, as in vLLM's own tests, leaves the grammar as vLLM does.
        """
        if self._next:
            use_grammar(session, self._next.popleft())


def _taken(request: Request) -> Grammar | None:
    grammar, params = grammar_of(request), request.sampling_params
    extra_args = params.extra_args if params is not None else None
    if grammar is not None and extra_args and extra_args.get(WHOLE_TURN_KEY):
        constrain_from_start(grammar)
    return grammar
