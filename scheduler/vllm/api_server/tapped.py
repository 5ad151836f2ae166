"""vLLM's client of an engine, whose outputs for one request can be followed from outside.

vLLM's HTTP server keeps the tokens of its answers to itself. Who calls the server in the same task
can open a tap around the call, and finds the tokens in it.
"""

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from typing import Any

from vllm.outputs import RequestOutput
from vllm.v1.engine.async_llm import AsyncLLM


class Tap:
    """The tokens of one request: its prompt, and what the model sampled."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.requests = 0
        """How many requests were sent to the engine; with more than one, `tokens` are mixed."""

    def take(self, output: RequestOutput) -> None:
        """Add one output, which holds new tokens only."""
        if not self.tokens:
            self.tokens.extend(output.prompt_token_ids or ())
        self.tokens.extend(output.outputs[0].token_ids)


_TAP: ContextVar[Tap | None] = ContextVar("caesura_tap", default=None)


@contextmanager
def tapped() -> Iterator[Tap]:
    """Follow the requests that this task, or a task that it starts, sends to a `TappedLLM`."""
    tap = Tap()
    token = _TAP.set(tap)
    try:
        yield tap
    finally:
        _TAP.reset(token)


class TappedLLM(AsyncLLM):
    """vLLM's client; without a tap it does what vLLM's does."""

    def generate(self, *args: Any, **settings: Any) -> AsyncGenerator[RequestOutput, None]:
        """Start a request, and yield its outputs; see `AsyncLLM.generate`."""
        outputs = super().generate(*args, **settings)
        tap = _TAP.get()
        if tap is None:
            return outputs
        tap.requests += 1
        return _followed(outputs, tap)


async def _followed(
    outputs: AsyncGenerator[RequestOutput, None], tap: Tap
) -> AsyncGenerator[RequestOutput, None]:
    async with aclosing(outputs):
        async for output in outputs:
            tap.take(output)
            yield output
