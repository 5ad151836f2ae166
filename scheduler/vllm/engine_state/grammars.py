"""The grammar of a request's turn, which vLLM compiles while the request waits."""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, TypeAlias

from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output.request import StructuredOutputRequest

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
