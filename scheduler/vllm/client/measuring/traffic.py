"""Synthetic traffic: requests of random tokens, paused sessions, and concurrent decoding."""

import asyncio
import random
import uuid
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

from vllm import SamplingParams
from vllm.exceptions import VLLMValidationError
from vllm.inputs import tokens_input
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

from caesura.intercept.calls.watch import WatchPlan
from caesura.scheduler.errors import EngineFailed, UsageError
from caesura.scheduler.vllm.client.engine import VllmEngine
from caesura.scheduler.vllm.client.live import LiveRequest
from caesura.scheduler.vllm.wire import REPORT_KEY, WATCH_KEY


class Traffic:
    """Drives one engine, the first of data-parallel ones.

    Every prompt is random, so the prefix cache never holds one.
    """

    def __init__(self, engine: VllmEngine, seed: int = 1) -> None:
        self.engine = engine
        self._random = random.Random(seed)
        tokenizer = engine.tokenizer
        known = min(len(tokenizer), engine.llm.model_config.get_vocab_size())
        # Special tokens may have side effects, such as standing for images.
        special = {*tokenizer.all_special_ids, *getattr(tokenizer, "added_tokens_decoder", ())}
        self._ids = [token for token in range(known) if token not in special]

    def prompt(self, tokens: int) -> list[int]:
        """Return a prompt of `tokens` random tokens."""
        return self._random.choices(self._ids, k=tokens)

    async def decode(self, prompts: Iterable[Sequence[int]], tokens: int) -> None:
        """Decode `tokens` tokens after each of the prompts, all at once.

        Raises `EngineFailed`, and `UsageError` for what vLLM refuses.
        """
        await asyncio.gather(*(self._decode(prompt, tokens) for prompt in prompts))

    @asynccontextmanager
    async def beside(self, sequences: int, context: int) -> AsyncIterator[None]:
        """Decode `sequences` requests within the context, with prompts of `context` tokens."""
        room = self.engine.context_tokens - context - 1
        begun = [asyncio.Event() for _ in range(sequences)]
        prompts = [self.prompt(context) for _ in begun]
        tasks = [
            asyncio.create_task(self._decode(prompt, room, event))
            for prompt, event in zip(prompts, begun, strict=True)
        ]
        try:
            for event, task in zip(begun, tasks, strict=True):
                waiting = asyncio.create_task(event.wait())
                await asyncio.wait([waiting, task], return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def pause(self, prompt: Sequence[int]) -> "PausedSession":
        """Return a session that has computed `prompt` and paused at its first token."""
        session = PausedSession(self.engine, self._ids[0], prompt)
        await session.read()
        return session

    async def _decode(
        self, prompt: Sequence[int], tokens: int, begun: asyncio.Event | None = None
    ) -> None:
        kind = RequestOutputKind.FINAL_ONLY if begun is None else RequestOutputKind.DELTA
        params = SamplingParams(
            temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False, output_kind=kind
        )
        outputs = self.engine.llm.generate(
            tokens_input(list(prompt)),
            params,
            f"measure-{uuid.uuid4().hex}",
            data_parallel_rank=self.engine.routes.first.rank,
        )
        try:
            async with aclosing(outputs):
                async for _ in outputs:
                    if begun is not None:
                        begun.set()
        except VLLMValidationError as error:
            raise UsageError(str(error)) from error
        except (EngineDeadError, EngineGenerateError) as error:
            raise EngineFailed(f"the engine failed while it was measured: {error}") from error


class PausedSession:
    """A session that pauses as for a tool call, at a token that it is forced to decode."""

    def __init__(self, engine: VllmEngine, token: int, prompt: Sequence[int]) -> None:
        self._token = token
        self._params = SamplingParams(
            temperature=0,
            max_tokens=2,
            ignore_eos=True,
            detokenize=False,
            allowed_token_ids=[token],
            stop_token_ids=[token],
            extra_args={WATCH_KEY: WatchPlan(("hermes",), turn="holding").to_wire()},
            output_kind=RequestOutputKind.DELTA,
        )
        name = f"measure-{uuid.uuid4().hex}"
        self._live = LiveRequest(
            engine.llm, name, prompt, self._params, resumable=True, route=engine.routes.first
        )

    async def read(self) -> None:
        """Wait until the session pauses; raise `EngineFailed` if it does not."""
        report: dict[str, Any] = {}
        async with aclosing(self._live.turn()) as outputs:
            async for output in outputs:
                report = (output.kv_transfer_params or {}).get(REPORT_KEY, {})
        if not report.get("paused"):
            raise EngineFailed("a measured session did not pause; use Caesura's scheduler")

    async def resume(self, tokens: Sequence[int]) -> None:
        """Resume the session with these tokens, and wait until it pauses again."""
        self._live.push([self._token, *tokens], self._params)
        await self.read()

    async def end(self) -> None:
        """End the session."""
        await self._live.end()

    async def abort(self) -> None:
        """Remove the session from the engine in any state."""
        await self._live.abort()
