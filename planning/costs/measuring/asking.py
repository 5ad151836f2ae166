"""Sending the requests of a load to an engine, and timing them."""

import asyncio
from collections.abc import Callable
from random import Random
from types import TracebackType
from typing import Any, Self

import aiohttp

from caesura.planning.costs.measuring.loads import Load, Taken
from caesura.planning.run.host import Endpoint, HostError

MAX_SECONDS = 600.0
"""How long a load may take."""


class Asker:
    """Sends loads to an engine. An asynchronous context manager.

    Prompts are random numbers, so that no prefix is cached. The tokens of a number are found with
    the first answers. Requests have no seed: vLLM 0.32 ends on processors when the prompt of a
    seeded request is split over steps.
    """

    def __init__(
        self, endpoint: Endpoint, random: Random, temperature: float, clock: Callable[[], float]
    ) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._random = random
        self._temperature = temperature
        self._http: aiohttp.ClientSession | None = None
        self._fixed, self._each = 12.0, 3.0

    async def __aenter__(self) -> Self:
        limits = aiohttp.ClientTimeout(total=MAX_SECONDS)
        self._http = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=limits)
        await self._learn_tokens()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._http is not None
        await self._http.close()

    async def take(self, load: Load) -> Taken:
        """Return how long a load takes; raises `HostError` if the engine fails."""
        words = max(1, round((load.prompt - self._fixed) / self._each))
        texts = [self._text(words) for _ in range(load.requests)]
        began = self._clock()
        prompts = await asyncio.gather(*(self._ask(text, load.output) for text in texts))
        return Taken(self._clock() - began, sum(prompts) // len(prompts))

    async def _learn_tokens(self) -> None:
        """Find the tokens of a prompt of so many numbers, and warm the engine up."""
        few, many = 4, 44
        low = await self._ask(self._text(few), 2)
        high = await self._ask(self._text(many), 2)
        self._each = max(0.5, (high - low) / (many - few))
        self._fixed = max(0.0, low - few * self._each)

    def _text(self, words: int) -> str:
        return " ".join(str(self._random.randrange(100, 1000)) for _ in range(words))

    async def _ask(self, text: str, tokens: int) -> int:
        """Return the tokens of the prompt of a request that decodes exactly so many tokens."""
        assert self._http is not None
        body: dict[str, Any] = {
            "model": self._endpoint.model,
            "messages": [{"role": "user", "content": text}],
            "max_tokens": tokens,
            "min_tokens": tokens,
            "temperature": self._temperature,
        }
        url, headers = self._endpoint.chat_url, self._endpoint.headers
        try:
            async with self._http.post(url, json=body, headers=headers) as answer:
                held = await answer.json(content_type=None)
                if answer.status != 200:
                    raise HostError(f"the engine refused a request: {held!s:.300}")
                return int(held["usage"]["prompt_tokens"])
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, LookupError) as error:
            raise HostError(f"the engine did not answer a request: {error!r}") from error
