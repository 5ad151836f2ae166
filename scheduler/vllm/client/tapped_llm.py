"""vLLM's client of an engine, whose requests can be followed and salted from outside.

vLLM's HTTP server keeps the tokens of its answers to itself. Who calls the server in the same task
can open a tap around the call, and finds the tokens in it. The same way it can say which salt the
prefix cache takes for the requests of the call, whichever route makes them. Among data-parallel
engines, requests of that server go where the others go: to the one that has the KV of their prompt.
Their grammars of JSON allow as little white space as those of other requests.
"""

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from typing import Any

from vllm.outputs import CompletionOutput, PoolingRequestOutput, RequestOutput
from vllm.sampling_params import SamplingParams
from vllm.v1.engine import PauseMode
from vllm.v1.engine.async_llm import AsyncLLM

from caesura.scheduler.session_log import SampledFacts, WeightsSpan
from caesura.scheduler.vllm.client.data_parallel import Route, routes_of
from caesura.scheduler.vllm.client.grammar import single_spaced
from caesura.scheduler.vllm.client.sampled import logprobs_of
from caesura.scheduler.vllm_server import TapListener


class Tap:
    """The tokens of one request: its prompt, and what the model sampled."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.prompt = 0
        """How many of the tokens are the prompt."""
        self.requests = 0
        """How many requests were sent to the engine; with more than one, `tokens` are mixed."""
        self.prompt_tokens = self.completion_tokens = self.cached_tokens = 0
        """Of all requests; several answers to one prompt count it once."""
        self.reason: str | None = None
        """Why the last answer that ended did."""
        self.facts = SampledFacts()
        """What is known of the sampled tokens, where the listener takes it."""
        self.listener: TapListener | None = None
        """Is told of the request, if it is set before that is sent."""
        self._known: set[str] = set()
        self._logprobs: list[float] | None = []

    @property
    def takes_facts(self) -> bool:
        """Whether the listener wants log probabilities and versions of the weights."""
        return self.listener is not None and self.listener.takes_facts

    def begin(self, request_id: str) -> None:
        """Note a request that goes to the engine."""
        self.requests += 1
        if self.listener is not None:
            self.listener.sent(request_id)

    def take(self, output: RequestOutput) -> None:
        """Add one output, which holds new tokens only."""
        if not self._known and self.listener is not None:
            self.listener.first()
        if output.request_id not in self._known:
            self._known.add(output.request_id)
            self.prompt_tokens += len(output.prompt_token_ids or ())
            self.cached_tokens += output.num_cached_tokens or 0
        if not self.tokens:
            self.tokens.extend(output.prompt_token_ids or ())
            self.prompt = len(self.tokens)
        self.tokens.extend(output.outputs[0].token_ids)
        if self.takes_facts:
            self._take_facts(output.outputs[0])
        for each in output.outputs:
            self.completion_tokens += len(each.token_ids)
            self.reason = each.finish_reason or self.reason

    def _take_facts(self, made: CompletionOutput) -> None:
        if made.token_ids and self._logprobs is not None:
            if (new := logprobs_of(made)) is None:
                self._logprobs = None
            else:
                self._logprobs += new
        spans = (
            WeightsSpan(each.version, each.end - each.start) for each in made.weight_versions or ()
        )
        self.facts = SampledFacts(self._logprobs, (*self.facts.weights, *spans))


Salt = Callable[[str | None], str]
"""Makes the salt of a request from the one that its client chose, if any."""

_TAPS: ContextVar[tuple[Tap, ...]] = ContextVar("caesura_taps", default=())
_SALT: ContextVar[Salt | None] = ContextVar("caesura_salt", default=None)


@contextmanager
def tapped() -> Iterator[Tap]:
    """Follow the requests that this task, or a task that it starts, sends to a `TappedLLM`."""
    tap = Tap()
    token = _TAPS.set((*_TAPS.get(), tap))
    try:
        yield tap
    finally:
        _TAPS.reset(token)


@contextmanager
def salted(salt: Salt) -> Iterator[None]:
    """Give the requests that this task, or a task that it starts, sends to a `TappedLLM` a salt."""
    token = _SALT.set(salt)
    try:
        yield
    finally:
        _SALT.reset(token)


CHANGES = ("reload_weights", "update_weights", "finish_weight_update")
"""The calls of vLLM's workers behind which the weights are others."""


class TappedLLM(AsyncLLM):
    """vLLM's client; without a tap and a salt, and with one engine, it does what vLLM's does.

    Where weights change under KV that is kept, later requests get another salt, so that none of
    them finds blocks of earlier weights, nor copies on the host.
    """

    aborting_pauses = 0
    """How often the engine was paused with all its requests aborted."""
    _changes = 0
    """How often the weights have changed under KV that was kept."""
    _is_clear = False
    """Whether the engine is paused, and has no KV of any prompt."""
    compact_json = False
    """Whether grammars of JSON allow little white space.

    Small models write blanks up to the token limit where a grammar allows any. vLLM's own setting
    is refused beside its default backend, and allows none at all.
    """

    def generate(
        self, prompt: Any, sampling_params: SamplingParams, *args: Any, **settings: Any
    ) -> AsyncGenerator[RequestOutput, None]:
        """Start a request, and yield its outputs; see `AsyncLLM.generate`."""
        taps = _TAPS.get()
        params = self._compact(sampling_params)
        if adds := params.logprobs is None and any(tap.takes_facts for tap in taps):
            params = params.clone()
            params.logprobs, params.flat_logprobs = 0, True
        prompt, args = self._salted(_with_salt(prompt)), (params, *args)
        tokens = prompt.get("prompt_token_ids") if isinstance(prompt, dict) else None
        if tokens and settings.get("data_parallel_rank") is None:
            route = routes_of(self).of(tokens, prompt.get("cache_salt"))
            settings["data_parallel_rank"] = route.rank
            outputs = super().generate(prompt, *args, **settings)
            outputs = outputs if route.rank is None else _counted(outputs, route)
        else:
            outputs = super().generate(prompt, *args, **settings)
        if not taps:
            return outputs
        request_id = settings.get("request_id") or (args[1] if len(args) > 1 else "")
        for tap in taps:
            tap.begin(str(request_id))
        return _followed(outputs, taps, hides=adds)

    def _compact(self, params: SamplingParams) -> SamplingParams:
        """Return settings whose grammar of JSON allows little white space, with `compact_json`."""
        if params.structured_outputs is None or not self.compact_json:
            return params
        made = params.clone()
        made.structured_outputs = single_spaced(params.structured_outputs)
        return made

    def encode(
        self, prompt: Any, *args: Any, **settings: Any
    ) -> AsyncGenerator[PoolingRequestOutput, None]:
        """Start a request without an answer's tokens; see `AsyncLLM.encode`."""
        return super().encode(self._salted(_with_salt(prompt)), *args, **settings)

    async def pause_generation(
        self, *, mode: PauseMode = "abort", clear_cache: bool = True
    ) -> None:
        """Pause the engine; see `AsyncLLM.pause_generation`."""
        self.aborting_pauses += mode == "abort"
        await super().pause_generation(mode=mode, clear_cache=clear_cache)
        self._is_clear = clear_cache

    async def resume_generation(self) -> None:
        """Let the engine go on; see `AsyncLLM.resume_generation`."""
        self._is_clear = False
        await super().resume_generation()

    async def sleep(self, level: int = 1, mode: PauseMode = "abort") -> None:
        """Let the engine sleep; see `AsyncLLM.sleep`."""
        self.aborting_pauses += mode == "abort"
        await super().sleep(level, mode)

    async def collective_rpc(self, method: Any, *args: Any, **settings: Any) -> Any:
        """Call a method of all workers; see `AsyncLLM.collective_rpc`."""
        try:
            return await super().collective_rpc(method, *args, **settings)
        finally:
            if method in CHANGES:  # also if it failed half-way
                self._changed()

    async def update_weight_version(self, new_version: str) -> None:
        """Name the weights; see `AsyncLLM.update_weight_version`."""
        await super().update_weight_version(new_version)
        self._changed()

    def _changed(self) -> None:
        self._changes += not self._is_clear

    def salt(self, chosen: str | None) -> str | None:
        """Return the salt of a request that is sent now; it may have a `chosen` one."""
        if not self._changes:
            return chosen
        ours = f"weights-{self._changes}"
        known = chosen is not None and (chosen == ours or chosen.endswith(f"/{ours}"))
        return chosen if known else f"{chosen}/{ours}" if chosen else ours

    def _salted(self, prompt: Any) -> Any:
        """Return a prompt with that salt; one without fields stays as it is."""
        if not self._changes or not isinstance(prompt, dict):
            return prompt
        return {**prompt, "cache_salt": self.salt(prompt.get("cache_salt"))}


def _with_salt(prompt: Any) -> Any:
    """Return a prompt with the salt of its context; one without fields stays as it is."""
    salt = _SALT.get()
    if salt is None or not isinstance(prompt, dict):
        return prompt
    return {**prompt, "cache_salt": salt(prompt.get("cache_salt"))}


async def _followed(
    outputs: AsyncGenerator[RequestOutput, None], taps: Sequence[Tap], *, hides: bool
) -> AsyncGenerator[RequestOutput, None]:
    """Let taps take outputs; with `hides`, log probabilities are for them alone."""
    async with aclosing(outputs):
        async for output in outputs:
            for tap in taps:
                tap.take(output)
            for made in output.outputs if hides else ():
                made.logprobs = made.cumulative_logprob = None
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
