"""Splicing for requests that vLLM's own server answers."""

from collections.abc import Sequence
from contextlib import AbstractContextManager

from vllm.renderers import online_renderer

from caesura.intercept.calls.events import FollowUpReport
from caesura.intercept.calls.formats import HARMONY
from caesura.scheduler.answers import FollowUp
from caesura.scheduler.messages import Message, Sampling, SessionSpec
from caesura.scheduler.vllm.api_server.tapped import Tap, TappedLLM, tapped
from caesura.scheduler.vllm.client.engine import VllmEngine


class ServerSplicing:
    """Implements `caesura.runtime.engine.ServerSplicing` for one engine."""

    def __init__(self, engine: VllmEngine) -> None:
        self._completed = engine.completed
        self._splicer = engine.splicer
        self._renderer = engine.renderer
        self._context_tokens = engine.context_tokens
        self._parses_reasoning = bool(engine.reasoning_parser)

    async def follow_up(
        self, messages: Sequence[Message], spec: SessionSpec, sampling: Sampling
    ) -> FollowUp | None:
        """Return the prompt of a conversation; see `Splicer.follow_up`."""
        found = await self._splicer.follow_up(messages, self._completed(spec), sampling)
        if found is None or found.tokens is None:
            return found
        # vLLM's server refuses a limit that does not fit behind the prompt.
        if len(found.tokens) + (sampling.max_tokens or 1) > self._context_tokens:
            return FollowUp(FollowUpReport("rendered", "room"))
        if self._parses_reasoning and not self._renderer.thinking(found.tokens):
            # vLLM's parsers of reasoning look for the last marker in the prompt, which would be
            # the end of an earlier answer's thinking.
            return FollowUp(FollowUpReport("rendered", "reasoning"))
        return found

    async def remember(
        self, messages: Sequence[Message], spec: SessionSpec, tokens: Sequence[int]
    ) -> None:
        """Keep the tokens of an answer; see `Splicer.remember`."""
        await self._splicer.remember(messages, self._completed(spec), tokens)

    def tapped(self) -> AbstractContextManager[Tap]:
        """Follow the tokens of the request that the context sends to vLLM's server."""
        return tapped()


def server_splicing(engine: VllmEngine) -> ServerSplicing | None:
    """Return the splicing of an engine's server, or None if its prompts cannot be replaced.

    vLLM's server renders gpt-oss in a way of its own. A release of vLLM may take no prompts as
    tokens.
    """
    takes_tokens = hasattr(online_renderer, "_reused_prompt_token_ids")
    if not takes_tokens or not isinstance(engine.llm, TappedLLM):
        return None
    if HARMONY.name in engine.formats or not engine.splicer.enabled:
        return None
    return ServerSplicing(engine)
