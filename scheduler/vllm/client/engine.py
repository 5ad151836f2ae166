"""`VllmEngine`, the API process's client of an engine, over vLLM's `AsyncLLM`.

The class implements `caesura.runtime.engine.Engine`.
"""

import asyncio
import logging
import os
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Self

from vllm import SamplingParams
from vllm.exceptions import VLLMValidationError
from vllm.inputs import tokens_input
from vllm.lora.request import LoRARequest
from vllm.renderers import merge_kwargs
from vllm.renderers.chat_utils import load_chat_template
from vllm.renderers.hf import HfTokenizer, resolve_chat_template_content_format
from vllm.utils.mistral import is_mistral_tokenizer
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError

from caesura.intercept.calls.formats import NAMES
from caesura.intercept.kv.views import Groups
from caesura.scheduler.answers import Answers
from caesura.scheduler.calibration import Calibration
from caesura.scheduler.engine_options import EngineOptions
from caesura.scheduler.errors import EngineFailed, UsageError, refuse_forked
from caesura.scheduler.histories import History
from caesura.scheduler.messages import InputGrammar, MediaRules, Message, Sampling, SessionSpec
from caesura.scheduler.programs import Origin
from caesura.scheduler.revival import Revival
from caesura.scheduler.session_log import SessionLog
from caesura.scheduler.vllm.client.data_parallel import Routes, combined, routes_of
from caesura.scheduler.vllm.client.grammar import GrammarMaker
from caesura.scheduler.vllm.client.model_formats import named_formats, with_parser
from caesura.scheduler.vllm.client.parsing import quiet_parsers
from caesura.scheduler.vllm.client.process import EngineProcess, Start, ends_of
from caesura.scheduler.vllm.client.rendering.conversation import Rendering
from caesura.scheduler.vllm.client.rendering.media import MediaRenderer
from caesura.scheduler.vllm.client.rendering.mistral import MistralRenderer
from caesura.scheduler.vllm.client.rendering.render import Renderer
from caesura.scheduler.vllm.client.rendering.splice import Splicer
from caesura.scheduler.vllm.client.rendering.threads import RenderThreads
from caesura.scheduler.vllm.client.sampling import SamplingRules
from caesura.scheduler.vllm.client.session import VllmSession
from caesura.scheduler.vllm.client.turns import Language
from caesura.scheduler.vllm.engine.compose import settings_of
from caesura.scheduler.vllm.engine.export.exporter import Listener, listeners_of
from caesura.scheduler.vllm.tokenizer import (
    format_names,
    template_of,
    thinking_regions,
)
from caesura.scheduler.vllm.wire import (
    CONTROL_KEY,
    CONTROL_SECRET_KEY,
    REPORT_KEY,
    secret_to_send,
)
from caesura.scheduler.vllm_server import VllmServer

logger = logging.getLogger(__name__)


class VllmEngine:
    """A model served by vLLM in a process of its own."""

    adapters: Mapping[str, LoRARequest] = MappingProxyType({})
    """The LoRA adapters by name; vLLM's server, which loads them, keeps them up to date."""
    loop: asyncio.AbstractEventLoop | None = None
    """The event loop to which it belongs, if its starter says so."""
    _is_updating = False

    def __init__(
        self,
        llm: AsyncLLM,
        options: EngineOptions,
        *,
        calibration: Calibration | None = None,
        server_options: Mapping[str, Any] | None = None,
        start: Start | None = None,
    ) -> None:
        """Create a client of `llm`, which serves the model of the options.

        Without formats among the options, that of the `tool_call_parser` among the
        `server_options` counts, or those that the chat template shows. `calibration` is the one
        that the scheduler was started with. `server_options` are for vLLM's HTTP server on this
        engine, should it be built. `start` starts the process anew; without it the engine cannot
        be restarted. Raises `UsageError` for a format that the model cannot write.
        """
        quiet_parsers()
        self._process = EngineProcess(llm, start)
        self._started_in = os.getpid()
        self.names = options.names
        """The names under which the model is served."""
        self.calibration = self._first_calibration = calibration
        self.server_options = dict(server_options or {})
        self.tokenizer: Any = llm.get_tokenizer()
        self.reasoning_parser = _reasoning_parser(llm)
        """The name of vLLM's parser of reasoning, or empty."""
        self.context_tokens = int(llm.model_config.max_model_len)
        """The model's context window in tokens."""
        chosen = chosen_template(self.server_options, self.tokenizer)
        template = template_of(self.tokenizer, chosen)
        self.language = self._language(template, options.formats, options.thinking_as_text)
        self.rendering = self._rendering(chosen, options.splice, not options.special_tokens_in_text)
        about = (self.language.formats, self.tokenizer, template)
        backend = str(llm.vllm_config.structured_outputs_config.backend)
        self.grammars = GrammarMaker(*about, _is_compact(llm), backend)
        self.language.check()
        reads_special = self.language.reads_special_tokens
        self.sampling = SamplingRules(llm.model_config, reads_special_tokens=reads_special)

    def _language(
        self, template: str, formats: Sequence[str] | None, thinking_as_text: bool
    ) -> Language:
        """Return how the model writes; without `formats`, as the template and options show."""
        tokenizer, parser = self.tokenizer, self.server_options.get("tool_call_parser")
        detected = format_names(tokenizer, template) if formats is None else ()
        known = with_parser(detected, parser) if formats is None else named_formats(formats)
        thinking: tuple[str, ...] = ()
        if not thinking_as_text:
            thinking = thinking_regions(tokenizer, template, known, self.reasoning_parser)
        return Language(tokenizer, known, _end_tokens(self.llm, tokenizer), thinking)

    def _rendering(self, template: str | None, splice: bool, literal: bool) -> Rendering:
        llm, tokenizer, context = self.llm, self.tokenizer, self.context_tokens
        shown = str(self.server_options.get("chat_template_content_format") or "auto")
        in_parts = takes_parts(llm, tokenizer, template, shown)
        made = MistralRenderer if is_mistral_tokenizer(tokenizer) else Renderer
        renderer = made(tokenizer, self.language.ends, context, literal, template, in_parts)
        threads = RenderThreads()
        media = MediaRenderer(llm, renderer, threads, shown)
        splicer = Splicer(renderer, threads, context, Answers() if splice else None)
        return Rendering(renderer, media, splicer, threads)

    @property
    def model(self) -> str:
        """The name under which the model is served."""
        return self.names[0]

    @property
    def llm(self) -> AsyncLLM:
        """vLLM's present client, which a restart replaces; raises `EngineFailed` once closed."""
        return self._process.llm

    @property
    def routes(self) -> Routes:
        """Where new requests go, among data-parallel engines."""
        return routes_of(self.llm)

    @property
    def max_characters(self) -> int | None:
        """A text of more characters does not fit the window; None if that is not known."""
        return self.rendering.renderer.max_characters

    def check_input(self, grammar: InputGrammar) -> None:
        """Raise `UsageError` if the text of a call cannot be made to follow a grammar."""
        self.grammars.check_input(grammar)

    def count_tokens(self, text: str) -> int:
        """Return the number of the text's tokens for this model; callable from any thread."""
        return len(self.rendering.renderer.encode_literal(text))

    @property
    def default_sampling(self) -> Sampling:
        """The settings of the model's generation configuration, which hold by default."""
        return self.sampling.default

    @property
    def max_answer_tokens(self) -> int | None:
        """The operator's bound on an answer's tokens, or None; see `Engine.max_answer_tokens`."""
        return self.sampling.max_answer_tokens

    @property
    def media_rules(self) -> MediaRules:
        """The pictures, sounds and videos that prompts may hold."""
        return self.rendering.media.rules

    async def count_prompt(self, spec: SessionSpec, messages: Sequence[Message]) -> int:
        """Return the number of tokens of a first turn's prompt; a thread renders a large one.

        Raises `UsageError` and `ContextOverflow` as `Renderer.prompt` does.
        """
        tokens, _ = await self.rendering.prompt(messages, self.completed(spec), spec.prefill)
        return len(tokens)

    def open(self, spec: SessionSpec, log: SessionLog | None = None) -> VllmSession:
        """Return a new session, which sends nothing to the engine before its first turn.

        Raises `UsageError` if tools must run here and the model's format is unknown, for a
        priority where vLLM does not schedule by priority, and in a forked process.
        """
        refuse_forked(self._started_in)
        if spec.priority:
            self._check_priority(spec.priority)
        self.adapter(spec.adapter)
        if (
            spec.known_tools
            and spec.pausing
            and spec.tool_choice == "auto"
            and not self.language.formats
        ):
            raise UsageError(f"tools cannot run: {unknown_format(self.model)}")
        return VllmSession(self, self.completed(spec), log)

    def adapter(self, name: str | None) -> LoRARequest | None:
        """Return the adapter of a name, or None for no name; raise `UsageError` if it is gone."""
        if name is not None and name not in self.adapters:
            known = ", ".join(self.adapters) or "none"
            raise UsageError(f"there is no adapter {name!r}; there are: {known}")
        return None if name is None else self.adapters[name]

    def completed(self, spec: SessionSpec) -> SessionSpec:
        """Return the spec with what the options of vLLM's server say of all prompts."""
        options = self.server_options
        defaults = dict(options.get("default_chat_template_kwargs") or {})
        if options.get("cohere_format"):
            defaults.setdefault("cohere_format", options["cohere_format"])
        hides = options.get("exclude_tools_when_tool_choice_none") and spec.tool_choice == "none"
        template = merge_kwargs(defaults, dict(spec.template)) if defaults else spec.template
        return replace(spec, tools=() if hides else spec.tools, template=template)

    def _check_priority(self, priority: int) -> None:
        policy = self.llm.vllm_config.scheduler_config.policy
        if policy != "priority":
            raise UsageError(
                f"priority is {priority}, but the engine schedules by {policy}; leave it out"
                " or start with --scheduling-policy priority"
            )

    async def state(self) -> dict[str, Any]:
        """Return the scheduler's state (see `caesura.scheduler.vllm.control`).

        With several data-parallel engines it has the sums, and their states as `engines`.
        """
        return combined(await self.command_all("state"))

    async def command_all(self, message: str | Mapping[str, Any]) -> list[dict[str, Any]]:
        """Send a control message to all data-parallel engines; return their replies by rank."""
        ranks = self.routes.ranks if self.routes.several else (None,)
        return list(await asyncio.gather(*(self.command(message, rank) for rank in ranks)))

    async def command(
        self, message: str | Mapping[str, Any], rank: int | None = None
    ) -> dict[str, Any]:
        """Send the scheduler a control message and return its reply.

        `rank` names one of several data-parallel engines, None the first. The messages are
        described in `caesura.scheduler.vllm.control`. Raises `UsageError` if the scheduler refuses
        the message or there is no secret, and `EngineFailed` without a reply.
        """
        extra_args = {CONTROL_KEY: message, CONTROL_SECRET_KEY: secret_to_send()}
        params = SamplingParams(max_tokens=1, extra_args=extra_args)
        name = f"command-{uuid.uuid4().hex}"
        if rank is None:
            rank = self.routes.first.rank
        try:
            async for output in self.llm.generate(
                tokens_input([0]), params, name, data_parallel_rank=rank
            ):
                if output.kv_transfer_params and REPORT_KEY in output.kv_transfer_params:
                    reply = dict(output.kv_transfer_params[REPORT_KEY])
                    if "error" in reply:
                        raise UsageError(str(reply["error"]))
                    return reply
        except EngineDeadError as error:
            raise EngineFailed(f"the engine is dead: {error}") from error
        raise EngineFailed("the scheduler did not answer; start vLLM with Caesura's scheduler")

    async def history(self, messages: Sequence[Message], spec: SessionSpec) -> History:
        """Return what messages tell the model; see `Engine.history`."""
        return await self.rendering.splicer.history(messages, self.completed(spec))

    async def end_session(self, origin: Origin) -> None:
        """Free what is kept for a session in all engines; see `Engine.end_session`."""
        told = {"tenant": origin.tenant, "session": origin.session}
        try:
            await self.command_all({"command": "end_session", **told})
        except (UsageError, EngineFailed) as error:
            # A dead engine keeps nothing, and elsewhere the KV is freed after its time.
            logger.warning("a session was not ended in the engine: %s", error)

    # -- what its operator sees: this engine is its own `caesura.runtime.engine.Backend` -----------

    @property
    def backend(self) -> Self:
        """What its operator sees of it."""
        return self

    async def measure(self, quick: bool, progress: Callable[[float, str], None]) -> Calibration:
        """Measure the idle engine; see `caesura.scheduler.vllm.client.measurement.measure`."""
        # A late import: few engines are measured.
        from caesura.scheduler.vllm.client.measurement import measure

        return await measure(self, quick, progress)

    @asynccontextmanager
    async def updating(self, version: str, *, keeps_kv: bool) -> AsyncIterator[AsyncLLM]:
        """Freeze all requests while the caller changes the weights; see `Backend.updating`."""
        if self._is_updating:
            raise UsageError(
                f"the weights are being updated, so they cannot become {version!r} now: wait for"
                " the other update to end"
            )
        self._is_updating = True
        try:
            llm = self.llm
            await llm.pause_generation(mode="keep", clear_cache=not keeps_kv)
            yield llm
            if keeps_kv and llm.model_config.is_multimodal_model:
                # A pause that drops KV has dropped what was seen, too.
                await llm.reset_mm_cache()
                await llm.reset_encoder_cache()
            await llm.update_weight_version(version)
            await llm.resume_generation()
        except EngineDeadError as error:
            raise EngineFailed(f"the engine is dead: {error}") from error
        finally:
            self._is_updating = False

    async def adopt(self, calibration: Calibration) -> None:
        """Install the calibration in the schedulers of the running engine."""
        await self.command_all({"command": "calibrate", "cost": calibration.cost.to_wire()})
        self.calibration = calibration

    def listen(self, take: Listener) -> Callable[[], None]:
        """Call `take` with the engine's records; return what stops that."""
        return listeners_of(self.llm.vllm_config).listen(take)

    async def sizes(self) -> list[dict[str, Any]]:
        """Return the sizes of each data-parallel engine's KV cache and steps, by rank.

        The list is empty with `--disable-log-stats`, where no records are sent.
        """
        return await self.command_all("facts") if self.llm.log_stats else []

    async def facts(self) -> dict[str, Any]:
        """Return what a recording holds of the engine, besides its model."""
        state, sizes, config = await self.state(), await self.command("facts"), self.llm.vllm_config
        facts: dict[str, Any] = dict(settings_of(config).told())
        facts |= {"handling": state["handling"], "host_blocks": state["host_blocks"]}
        facts |= {name: sizes[name] for name in ("block_size", "most_running", "most_step_tokens")}
        facts["kv_groups"] = Groups(**sizes["groups"]).told()
        if sizes["block_bytes"]:
            facts["block_bytes"] = sizes["block_bytes"]
        facts["total_blocks"] = state["blocks_total"]
        facts["prefix_caching"] = bool(config.cache_config.enable_prefix_caching)
        facts["engines"] = config.parallel_config.data_parallel_size
        if self.calibration is not None:
            facts["machine"] = self.calibration.device
        return facts

    async def answer(self) -> None:
        """Return once the process has answered, between two steps; it may be busy till then."""
        await self.llm.is_sleeping()  # any question would do; this one changes nothing

    def cause_of_death(self) -> str:
        """Return how the processes of a dead engine ended, or an empty text if not known."""
        return ends_of(self.llm)

    def server(self) -> AbstractAsyncContextManager[VllmServer]:
        """Yield vLLM's own HTTP application on the engine."""
        # A late import, since it loads vLLM's server.
        from caesura.scheduler.vllm.client.api_server import served

        return served(self)

    # -- its process -----------------------------------------------------------------------------

    async def check_health(self) -> None:
        """Raise `EngineFailed` if the engine process has died."""
        try:
            await self.llm.check_health()
        except EngineDeadError as error:
            raise EngineFailed(f"the engine is dead: {error}") from error

    @property
    def revival(self) -> Revival:
        """Where sessions wait for a restart; see `Engine.revival`."""
        return self._process.revival

    async def restart(self) -> None:
        """Start the engine's process anew; see `Engine.restart`."""
        await self._process.restart()
        self.rendering.media.use(self.llm)
        # Another one may get the number of an adapter that was loaded while the server ran.
        kept = {each.name for each in self.server_options.get("lora_modules") or ()}
        self.adapters = {name: each for name, each in self.adapters.items() if name in kept}
        if self.calibration is not None and self.calibration is not self._first_calibration:
            # It was adopted while the engine ran, so the new process does not know it.
            cost = self.calibration.cost.to_wire()
            await self.command_all({"command": "calibrate", "cost": cost})
        self.revival.revive()

    async def revived(self, error: EngineFailed) -> None:
        """Wait until the engine lives again after `error`; see `Engine.revived`."""
        await self.revival.wait(error)

    async def close(self) -> None:
        """Stop the engine process."""
        self.rendering.threads.close()
        await self._process.close()


def unknown_format(model: str) -> str:
    """Return the message for a model whose chat template shows no known format of calls."""
    return (
        f"how {model} writes calls is not known from its chat template, so its calls are shown as"
        f" text; name its format with --format, or formats=[...]: {', '.join(NAMES)}, or the name"
        " of a tool parser of vLLM's"
    )


def given_template(server_options: Mapping[str, Any]) -> str | None:
    """Return the text of the chat template that the options of vLLM's server name, if they do.

    Raises `UsageError` for a template that cannot be read.
    """
    try:
        return load_chat_template(server_options.get("chat_template"))
    except (ValueError, OSError, VLLMValidationError) as error:
        raise UsageError(f"the chat template cannot be used: {error}") from error


def chosen_template(server_options: Mapping[str, Any], tokenizer: Any) -> str | None:
    """Return the text of `--chat-template`, or None without it.

    Raises `UsageError` for a template that cannot be read, or that the tokenizer does not use.
    """
    chosen = given_template(server_options)
    if chosen is not None and is_mistral_tokenizer(tokenizer):
        raise UsageError(
            f"--chat-template {server_options['chat_template']}: {type(tokenizer).__name__} renders"
            " without a template; leave the option out, or start with --tokenizer-mode hf"
        )
    return chosen


def takes_parts(llm: AsyncLLM, tokenizer: Any, template: str | None, given: str) -> bool:
    """Return whether the template gets texts as lists of parts, by vLLM's own rule.

    `given` is `--chat-template-content-format`.
    """
    if given != "auto" or not isinstance(tokenizer, HfTokenizer):
        return given == "openai"
    config = llm.model_config
    found = resolve_chat_template_content_format(
        template, [], "auto", tokenizer, model_config=config
    )
    return found == "openai"


def _end_tokens(llm: AsyncLLM, tokenizer: Any) -> frozenset[int]:
    """Return the ids that end a turn, from the tokenizer and the generation configuration."""
    configured = llm.model_config.try_get_generation_config().get("eos_token_id", [])
    ends = set(configured if isinstance(configured, list) else [configured])
    if tokenizer.eos_token_id is not None:
        ends.add(tokenizer.eos_token_id)
    return frozenset(ends)


def _is_compact(llm: AsyncLLM) -> bool:
    """Return whether grammars of JSON shall allow little white space."""
    chosen = llm.vllm_config.structured_outputs_config.disable_any_whitespace
    return bool(chosen or getattr(llm, "compact_json", False))


def _reasoning_parser(llm: AsyncLLM) -> str:
    """Return the name that `--reasoning-parser` gave, or an empty text."""
    return str(llm.vllm_config.structured_outputs_config.reasoning_parser or "")
