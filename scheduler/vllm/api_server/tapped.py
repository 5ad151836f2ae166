"""vLLM's client of an engine, whose outputs for one request can be followed from outside.

vLLM's HTTP server keeps the tokens of its answers to itself. Who calls the server in the same task
can open a tap around the call, and finds the tokens in it. Among data-parallel engines, requests of
that server go where the others go: to the one that has the KV of their prompt.
"""

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from typing import Any

from vllm.outputs import RequestOutput
from vllm.v1.engine.async_llm import AsyncLLM

from caesura.scheduler.vllm.client.ranks.routes import Route, routes_of


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
    """vLLM's client; without a tap, and with one engine, it does what vLLM's does."""

    def generate(
        self, prompt: Any, *args: Any, **settings: Any
    ) -> AsyncGenerator[RequestOutput, None]:
        """Start a request, and yield its outputs; see `AsyncLLM.generate`."""
        tokens = prompt.get("prompt_token_ids") if isinstance(prompt, dict) else None
        if tokens and settings.get("data_parallel_rank") is None:
            route = routes_of(self).of(tokens, prompt.get("cache_salt"))
            settings["data_parallel_rank"] = route.rank
            outputs = super().generate(prompt, *args, **settings)
            outputs = outputs if route.rank is None else _counted(outputs, route)
        else:
            outputs = super().generate(prompt, *args, **settings)
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


async def _counted(
    outputs: AsyncGenerator[RequestOutput, None], route: Route
) -> AsyncGenerator[RequestOutput, None]:
    try:
        async with aclosing(outputs):
            async for output in outputs:
                route.sampled(output)
                yield output
    finally:
        route.ended()
