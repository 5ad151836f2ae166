"""vLLM's own HTTP application, built on an engine that runs already.

Answers of some models can be read by it alone. Follow-ups of the chat completions that it answers
are spliced as those of others are.
"""

import logging
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from copy import copy
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send
from vllm.entrypoints.launchers.api_server.app_state import init_app_state
from vllm.entrypoints.launchers.app import build_app
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.renderers import online_renderer

from caesura.intercept.calls.events import FollowUpReport
from caesura.intercept.calls.formats import HARMONY, turn_format
from caesura.intercept.calls.thinking import REGIONS
from caesura.scheduler.answers import FollowUp
from caesura.scheduler.errors import ContextOverflow, UsageError
from caesura.scheduler.messages import Message, Sampling, SessionSpec, has_media
from caesura.scheduler.vllm.client.engine import VllmEngine
from caesura.scheduler.vllm.client.options import server_args
from caesura.scheduler.vllm.client.rendering.harmony import harmony_behind
from caesura.scheduler.vllm.client.rendering.render import Behind, Continuation
from caesura.scheduler.vllm.client.tapped_llm import Tap, TappedLLM, salted, tapped
from caesura.scheduler.vllm.client.tool_parsers import (
    PARSERS,
    parser_of_last_turn,
    register,
    thinking_parser,
)
from caesura.scheduler.vllm.client.turns import TurnMaker
from caesura.scheduler.vllm_server import TokenTap, VllmServer

logger = logging.getLogger(__name__)
KEEP_ALIVE_SECONDS = 15
"""After how long an idle stream gets a comment, as Caesura's own streams do."""


@dataclass
class ServerInFront:
    """What vLLM's error handler stops when the engine has died, in place of a server of its own.

    Without it, the handler fails itself, and the client does not learn what happened.
    """

    should_exit: bool = False


@asynccontextmanager
async def vllm_app(engine: VllmEngine) -> AsyncIterator[FastAPI]:
    """Yield vLLM's ASGI application on the engine; it serves while the context lasts.

    It takes the engine's `server_options`. Without a `tool_call_parser` among them, the one for
    the model's format of calls is used. Host names, keys and origins are not checked: the server
    in front of it does that.

    Raises `UsageError` for options that vLLM refuses.
    """
    register()
    llm = engine.llm
    args = server_args({**_parser_options(engine), **engine.server_options})
    args.model = llm.model_config.model
    args.served_model_name = list(engine.names)
    args.structured_outputs_config = copy(llm.vllm_config.structured_outputs_config)
    if reads_thinking(engine):
        args.structured_outputs_config.reasoning_parser = thinking_parser(engine.language.thinking)
    elif parser := parser_of_turns(engine):
        args.structured_outputs_config.reasoning_parser = parser
    # Clients of Caesura's endpoint have always seen these figures.
    args.enable_prompt_tokens_details = True
    args.sse_keep_alive_interval = KEEP_ALIVE_SECONDS
    args.enable_log_requests = False  # the engine's client logs the requests of all routes
    args.api_key = [""]  # so it does not ask for VLLM_API_KEY behind our own check of keys
    args.behind_caesura = True  # so our endpoint plugin, if it is allowed, leaves this server alone
    tasks = await llm.get_supported_tasks()
    # Building it sets the level of the root logger to vLLM's, which would hide Caesura's warnings.
    level = logging.getLogger().level
    try:
        app = build_app(args, tasks, llm.model_config)
        await init_app_state(llm, app.state, args, tasks)
        app.state.server = ServerInFront()
        engine.adapters = app.state.openai_serving_models.lora_requests
    except (ValueError, TypeError, KeyError, OSError) as error:
        raise UsageError(f"vLLM's server does not start with these options: {error}") from error
    finally:
        logging.getLogger().setLevel(level)
    async with app.router.lifespan_context(app):
        yield app


@asynccontextmanager
async def served(engine: VllmEngine) -> AsyncIterator[VllmServer]:
    """Yield vLLM's application, which its `renew` builds anew once the engine was restarted."""
    app = RenewedApp(engine)
    await app.renew()
    try:
        yield VllmServer(
            app,
            engine.max_characters,
            splicing=server_splicing(engine),
            parses_alone=parses_alone(engine),
            keeps_budgets=keeps_budgets(engine),
            renew=app.renew,
            salted=salted,
            tapped=tapped,
        )
    finally:
        await app.aclose()


class RenewedApp:
    """vLLM's application on an engine; after a restart of the engine it is built anew.

    A request that is under way meanwhile ends with the application that took it.
    """

    def __init__(self, engine: VllmEngine) -> None:
        """Create it without an application; await `renew` before the first request."""
        self._engine = engine
        self._app: ASGIApp | None = None
        self._stack = AsyncExitStack()

    async def renew(self) -> None:
        """Build the application on the engine's present process. Raises `UsageError`."""
        old, self._stack = self._stack, AsyncExitStack()
        await _closed(old)
        self._app = await self._stack.enter_async_context(vllm_app(self._engine))

    async def aclose(self) -> None:
        """End the application."""
        await self._stack.aclose()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request by the application of this moment."""
        assert self._app is not None
        await self._app(scope, receive, send)


async def _closed(stack: AsyncExitStack) -> None:
    """End an application whose engine may be dead."""
    try:
        await stack.aclose()
    except Exception as error:
        logger.warning("vLLM's application on the dead engine did not end: %s", error)


def _parser_options(engine: VllmEngine) -> dict[str, Any]:
    """Return the options that let vLLM's server read the calls of the engine's model."""
    form = turn_format(engine.language.formats)
    parser = None if form is None else PARSERS.get(form.name, form.parser)
    return {} if parser is None else {"enable_auto_tool_choice": True, "tool_call_parser": parser}


def reads_thinking(engine: VllmEngine) -> bool:
    """Return whether Caesura's parser of reasoning tells thinking apart in vLLM's server.

    An operator's own parser wins. vLLM's server does not show the special tokens of an answer.
    """
    tokens = getattr(engine.tokenizer, "added_tokens_decoder", {}).values()
    special = {each.content for each in tokens if each.special}
    regions = {*engine.language.thinking, *(REGIONS[each] for each in engine.language.thinking)}
    harmony = HARMONY.name in engine.language.formats
    return bool(regions) and not (engine.reasoning_parser or harmony or special & regions)


def parser_of_turns(engine: VllmEngine) -> str | None:
    """Return the name of the operator's own parser of reasoning that reads no earlier turns.

    The result is None without a parser, or where vLLM reads its answers by its name.
    """
    if not engine.reasoning_parser or HARMONY.name in engine.language.formats:
        return None
    return parser_of_last_turn(engine.reasoning_parser, engine.language.ends)


def uses_harmony(engine: VllmEngine) -> bool:
    """Return whether vLLM's server renders the model's chats by OpenAI's library."""
    return engine.llm.model_config.hf_config.model_type == "gpt_oss"


def parses_alone(engine: VllmEngine) -> bool:
    """Return whether only vLLM's server can read the answers of the engine's model.

    The format of calls is unknown here, or the way of thinking that its parser of reasoning reads.
    """
    splits = bool(engine.language.thinking) or HARMONY.name in engine.language.formats
    return not engine.language.formats or (bool(engine.reasoning_parser) and not splits)


def keeps_budgets(engine: VllmEngine) -> bool:
    """Return whether vLLM ends thinking at the budget of its request, which some options allow."""
    config = engine.llm.vllm_config.reasoning_config
    return config is not None and bool(config.enabled)


class AppSplicing:
    """Implements `caesura.scheduler.vllm_server.ServerSplicing` for one engine."""

    def __init__(self, engine: VllmEngine) -> None:
        self._completed = engine.completed
        self._language = engine.language
        self._rendering = engine.rendering
        self._splicer = engine.rendering.splicer
        self._renderer = engine.rendering.renderer
        self._harmony = uses_harmony(engine)
        self._rearranges = not self._harmony and bool(self._renderer.roles.told)
        self._context_tokens = engine.context_tokens
        own = bool(engine.reasoning_parser) and HARMONY.name not in engine.language.formats
        self._reads_prompts = own and parser_of_turns(engine) is None

    async def follow_up(
        self, messages: Sequence[Message], spec: SessionSpec, sampling: Sampling
    ) -> FollowUp | None:
        """Return the prompt of a conversation; see `Splicer.follow_up`."""
        told = (messages, self._completed(spec), sampling)
        found = await self._splicer.follow_up(*told, self._written if self._harmony else None)
        if found is None or found.tokens is None:
            return found
        # vLLM's server refuses a limit that does not fit behind the prompt.
        if len(found.tokens) + (sampling.max_tokens or 1) > self._context_tokens:
            return FollowUp(FollowUpReport("rendered", "room"))
        if self._reads_prompts and not self._renderer.thinking(found.tokens):
            # Some of vLLM's parsers of reasoning look for the last marker in the prompt, which
            # would be the end of an earlier answer's thinking.
            return FollowUp(FollowUpReport("rendered", "reasoning"))
        return found

    def _written(self, after: Continuation) -> Behind:
        return harmony_behind(after, self._language.ends)

    @property
    def rearranges(self) -> bool:
        """Whether there are messages that the chat template does not take as they are sent."""
        return self._rearranges

    async def rearranged(
        self, messages: Sequence[Message], spec: SessionSpec, sampling: Sampling
    ) -> Sequence[int] | None:
        """Return the prompt of messages that are written otherwise than they are sent.

        The result is None for all others, and for what vLLM's server refuses in its own words.
        """
        if has_media(messages) or not self._renderer.roles.rearranges(messages):
            return None
        try:
            tokens, _ = await self._rendering.prompt(messages, self._completed(spec), False)
        except (UsageError, ContextOverflow):
            return None
        room = self._context_tokens - (sampling.max_tokens or 1)
        return tokens if len(tokens) <= room else None

    @property
    def fields(self) -> Collection[str]:
        """The fields of a chat completion that vLLM's server reads."""
        return ChatCompletionRequest.model_fields

    async def remember(self, messages: Sequence[Message], spec: SessionSpec, tap: TokenTap) -> None:
        """Keep the tokens of an answer, unless they hold calls that the server did not show.

        See `Splicer.remember`.
        """
        if self._shows_all(messages[-1], spec, tap):
            await self._splicer.remember(messages, self._completed(spec), tap.tokens)

    def _shows_all(self, answer: Message, spec: SessionSpec, tap: TokenTap) -> bool:
        """Return whether an answer has all calls.

        Of several, a client may want the first alone. Of gpt-oss's, vLLM shows none to a tool that
        OpenAI's servers run.
        """
        rule, calls = spec.sampling.calls, answer.get("tool_calls") or ()
        if self._harmony:
            return bool(calls) == (self._language.text_of(tap.tokens[-1]) == HARMONY.closes)
        if rule is None or not rule.single or not calls:
            return True
        reader = TurnMaker(self._language, spec).reader(
            spec.sampling, self._renderer.thinking(tap.tokens[: tap.prompt])
        )
        sampled = [each for each in tap.tokens[tap.prompt :] if each not in self._language.ends]
        text = "".join(map(self._language.text_of, sampled))
        list(reader.push(text, sampled, ended=True))
        list(reader.end())
        return len(reader.calls) == len(calls)

    def tapped(self) -> AbstractContextManager[Tap]:
        """Follow the tokens of the request that the context sends to vLLM's server."""
        return tapped()


def server_splicing(engine: VllmEngine) -> AppSplicing | None:
    """Return the splicing of an engine's server, or None if its prompts cannot be replaced.

    A release of vLLM may take no prompts as tokens.
    """
    takes_tokens = hasattr(online_renderer, "_reused_prompt_token_ids")
    if not takes_tokens or not isinstance(engine.llm, TappedLLM):
        return None
    if not engine.rendering.splicer.enabled:
        return None
    return AppSplicing(engine)
