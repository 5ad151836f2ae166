"""The API process's handle of a vLLM request: it sends chunks and yields outputs."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Literal

from vllm import SamplingParams
from vllm.engine.protocol import StreamingInput
from vllm.exceptions import VLLMValidationError
from vllm.inputs import tokens_input
from vllm.lora.request import LoRARequest
from vllm.outputs import RequestOutput
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

from caesura.scheduler.errors import EngineDied, RequestFailed, UsageError
from caesura.scheduler.vllm.client.media.prompt import NO_MEDIA, Media
from caesura.scheduler.vllm.client.ranks.routes import Route


class LiveRequest:
    """One vLLM request; a resumable one takes further chunks after a pause."""

    def __init__(
        self,
        llm: AsyncLLM,
        request_id: str,
        tokens: Sequence[int],
        params: SamplingParams,
        resumable: bool,
        trace_headers: Callable[[], Mapping[str, str]] | None = None,
        cache_salt: str | None = None,
        priority: int = 0,
        media: Media = NO_MEDIA,
        route: Route | None = None,
        adapter: LoRARequest | None = None,
    ) -> None:
        """Start a request with `tokens`, which hold the placeholders of `media`.

        `route` names the engine that serves it, where there are several.
        """
        self._llm = llm
        self._route = route or Route()
        self._cache_salt = cache_salt
        self._request_id = request_id
        self._resumable = resumable
        self._chunks: asyncio.Queue[StreamingInput | None] = asyncio.Queue()
        first: Any = media.prompt(tokens, cache_salt)
        prompt: Any = self._inputs() if resumable else first
        headers = None
        if trace_headers is not None and llm.observability_config.otlp_traces_endpoint is not None:
            headers = trace_headers()  # with tracing off, vLLM would log a warning about them
        self._outputs = llm.generate(
            prompt,
            params,
            request_id,
            trace_headers=headers,
            lora_request=adapter,
            priority=priority,
            data_parallel_rank=self._route.rank,
        )
        if resumable:
            self._chunks.put_nowait(StreamingInput(first, params))

    @property
    def is_lost(self) -> bool:
        """Whether the engine of the request has died, or another one has taken its place."""
        return bool(self._llm.errored)

    async def engine_after_abort(self, seconds: float) -> Literal["dead", "paused", "running"]:
        """Return the state of the engine that dropped the request; it may die within `seconds`.

        An engine that ends itself drops its requests first, and answers no question any more.
        """
        handler = self._llm.output_handler
        if self.is_lost or handler is None:
            return "dead" if self.is_lost else "running"
        asked = asyncio.ensure_future(self._llm.is_paused())
        try:
            await asyncio.wait(
                [asked, handler], timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if asked.done() and asked.exception() is None:
                return "paused" if asked.result() else "running"
            await asyncio.wait([handler], timeout=seconds)
        finally:
            asked.cancel()
        return "dead" if self.is_lost else "running"

    def push(self, tokens: Sequence[int], params: SamplingParams) -> None:
        """Append tokens and continue the request.

        vLLM drops the last sampled token of a turn, whose KV was never computed, so the caller
        sends it again at the head of `tokens`.
        """
        # vLLM extends the list that it receives, so it gets a copy.
        chunk = tokens_input(list(tokens), cache_salt=self._cache_salt)
        self._chunks.put_nowait(StreamingInput(chunk, params))
        self._route.pushed(tokens)

    @property
    def rank(self) -> int | None:
        """The engine that serves the request, None where there is only one."""
        return self._route.rank

    async def turn(self) -> AsyncGenerator[RequestOutput, None]:
        """Yield outputs up to the one that stops the turn.

        Raises `EngineDied` if the engine died, `RequestFailed` if vLLM fails at the request, and
        `UsageError` if it refuses the request.
        """
        try:
            async for output in self._outputs:
                self._route.sampled(output)
                yield output
                if output.outputs[0].finish_reason is not None:
                    return
        except VLLMValidationError as error:
            raise UsageError(str(error)) from error
        except (EngineDeadError, EngineGenerateError) as error:
            dead = isinstance(error, EngineDeadError) or self.is_lost
            raise (EngineDied if dead else RequestFailed)(f"the engine failed: {error}") from error
        finally:
            self._route.ended()
        raise RequestFailed("the engine ended the request without a finish reason")

    async def end(self) -> None:
        """End a request that has stopped; no more tokens may be pushed."""
        if self._resumable:
            self._chunks.put_nowait(None)
        with contextlib.suppress(EngineDeadError, EngineGenerateError):
            async for _ in self._outputs:
                pass

    async def abort(self) -> None:
        """Remove the request from the engine in any state, and free its blocks and its slot."""
        self._route.ended()
        with contextlib.suppress(EngineDeadError):
            await self._llm.abort(self._request_id)
        # If another task reads the turn, that turn ends by itself with the reason "abort".
        with contextlib.suppress(RuntimeError, EngineDeadError):
            await self._outputs.aclose()

    async def _inputs(self) -> AsyncIterator[StreamingInput]:
        while (chunk := await self._chunks.get()) is not None:
            yield chunk
