"""vLLM's real scheduler and KV cache manager around a fake model runner and fake KV memory.

The runner knows only what the scheduler sends it. Its memory holds, per slot of a physical block,
the hash of the token prefix whose KV was written there, or a state's (`layouts.py`), so that a
block reused too early, a token lost at a resume or a stale write shows at the very step. The model
is a plan: for each request the whole sequence it will have, results of tools included; decoding
anything else is an error.
"""

import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

from transformers import LlamaConfig
from vllm import SamplingParams
from vllm.config import (
    CacheConfig,
    KVTransferConfig,
    ModelConfig,
    ParallelConfig,
    SchedulerConfig,
    SpeculativeConfig,
    VllmConfig,
)
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import (
    get_request_block_hasher,
    init_none_hash,
    resolve_kv_cache_block_sizes,
)
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs
from vllm.v1.kv_cache_interface import KVCacheConfig
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

from caesura.intercept.calls.formats import CallFormat
from caesura.intercept.calls.vocabulary import Vocabulary
from caesura.intercept.calls.watch import WatchPlan
from caesura.intercept.pause_hints import PauseHint
from caesura.scheduler.vllm import CaesuraAsyncScheduler, CaesuraScheduler
from caesura.scheduler.vllm.engine.compose import Dependencies, Parts
from caesura.scheduler.vllm.wire import REPORT_KEY, WATCH_KEY

from .layouts import Memory, block_sizes, groups_of, is_recurrent, layers_of
from .link import FakeLink

END = 256
BYTES = Vocabulary([bytes([value]) for value in range(256)] + [b"<end>"])


class SteppedClock:
    """A clock that stands still until its world takes a step."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@cache
def _model_directory() -> str:
    directory = tempfile.mkdtemp(prefix="caesura-test-model-")
    config = LlamaConfig(
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        vocab_size=257,
        max_position_embeddings=4096,
        architectures=["LlamaForCausalLM"],
    )
    config.save_pretrained(directory)
    init_none_hash(sha256)
    return str(Path(directory))


@cache
def _model_config(max_model_len: int) -> ModelConfig:
    return ModelConfig(
        model=_model_directory(),
        skip_tokenizer_init=True,
        dtype="float32",
        max_model_len=max_model_len,
    )


def make_scheduler(
    *,
    blocks: int = 100,
    block_size: int = 16,
    max_num_seqs: int = 16,
    max_num_batched_tokens: int = 512,
    max_model_len: int = 512,
    prefix_caching: bool = True,
    asynchronous: bool = False,
    scheduler_class: type | None = None,
    host_blocks: int | None = None,
    in_step: bool = True,
    layout: str = "full",
    window: int = 40,
    drafts: int = 0,
    formats: tuple[CallFormat, ...] | None = None,
    clock: Callable[[], float] | None = None,
    wall: Callable[[], float] = time.time,
    stages: int = 1,
    **settings: Any,
) -> Any:
    """Build a scheduler without an engine; `blocks` are those that requests can use.

    `host_blocks`: it has our connector, and so much host memory. `layout`: the groups of its KV
    cache (`layouts.py`), with windows of `window` tokens. `drafts`: it speculates with that many
    draft tokens a step. `formats` are those in which the model writes calls that are not watched.
    `stages`: the model is a pipeline, with that many steps in flight; one worker stands for all of
    them here. `settings` are Caesura's own.
    """
    sizes = block_sizes(layout, block_size, prefix_caching, max_model_len)
    speculative = None
    if drafts:
        speculative = SpeculativeConfig(model="ngram", num_speculative_tokens=drafts)
    config = VllmConfig(
        model_config=_model_config(max_model_len),
        scheduler_config=SchedulerConfig(
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max(max_num_batched_tokens, max_num_seqs),
            max_model_len=max_model_len,
            async_scheduling=asynchronous and not drafts,
            is_encoder_decoder=False,
        ),
        cache_config=CacheConfig(
            block_size=sizes[0],
            enable_prefix_caching=prefix_caching,
            mamba_cache_mode="align" if prefix_caching and is_recurrent(layout) else "none",
            mamba_block_size=sizes[1] if prefix_caching and is_recurrent(layout) else None,
        ),
        parallel_config=ParallelConfig(),
        speculative_config=speculative,
        additional_config={"caesura": settings},
    )
    # The CPU platform switches it off, and with it what waits for steps in flight; and vLLM refuses
    # it with n-gram drafts, which stand here for those of any method.
    config.scheduler_config.async_scheduling = asynchronous
    config.parallel_config.pipeline_parallel_size = stages
    if host_blocks is not None:
        layers = config.model_config.get_total_num_hidden_layers()
        # The KV cache here has one layer, so a worker's share is less than that of a whole stage.
        share = stages / layers if stages > 1 else 1
        of_all = (host_blocks + 0.1) / share
        config.kv_transfer_config = connector_config(of_all, block_size, in_step)
    groups = groups_of(layout, sizes, window, prefix_caching, drafts)
    config.cache_config.num_gpu_blocks = blocks + 1
    register_all_kvcache_specs(config)
    ours = CaesuraAsyncScheduler if asynchronous else CaesuraScheduler
    clock = clock or SteppedClock()
    given = Dependencies(clock=clock, wall=wall, vocabulary=BYTES, formats=formats)
    build = partial(ours, dependencies=given) if scheduler_class is None else scheduler_class
    kv_cache = KVCacheConfig(
        num_blocks=blocks + 1,
        kv_cache_tensors=[],
        kv_cache_groups=groups,
        prefix_cache_retention_interval=config.cache_config.prefix_cache_retention_interval,
    )
    of_step, of_hash = resolve_kv_cache_block_sizes(kv_cache, config)
    scheduler = build(
        vllm_config=config,
        kv_cache_config=kv_cache,
        block_size=of_step,
        hash_block_size=of_hash,
        log_stats=host_blocks is not None,
        structured_output_manager=StructuredOutputManager(config),
    )
    scheduler.use_v2_model_runner = asynchronous
    return scheduler


def connector_config(host_blocks: float, block_size: int, in_step: bool) -> KVTransferConfig:
    """Configure our connector with so many blocks of host memory, of 8 bytes a token."""
    return KVTransferConfig(
        kv_connector="CaesuraConnector",
        kv_connector_module_path="caesura.scheduler.vllm",
        kv_role="kv_both",
        kv_connector_extra_config={
            "host_gib": host_blocks * block_size * 8 / (1 << 30),
            "in_step": in_step,
        },
    )


@dataclass
class Session:
    """What a client plans for one request: alternately decoded text and tools' results."""

    request_id: str
    prompt: list[int]
    parts: list[list[int]]
    formats: tuple[str, ...] = ("inline",)
    pauses: dict[str, PauseHint] = field(default_factory=dict)
    position: int = 0
    delivered: list[int] = field(default_factory=list)
    reports: list[dict[str, Any]] = field(default_factory=list)
    paused: bool = False
    finished: bool = False

    @property
    def plan(self) -> list[int]:
        return [*self.prompt, *(token for part in self.parts for token in part)]


class World:
    """Steps the scheduler and the fake runner, with `depth` steps in flight."""

    def __init__(self, scheduler: Any, depth: int = 0) -> None:
        self.scheduler = scheduler
        self.depth = depth
        groups = scheduler.kv_cache_config.kv_cache_groups
        self.block_size: int = min(group.kv_cache_spec.block_size for group in groups)
        self._memory = Memory(self.block_size)
        self._layers = layers_of(groups, self._memory)
        self.sessions: dict[str, Session] = {}
        clock = self.parts.clock if hasattr(scheduler, "parts") else None
        self._clock = clock if isinstance(clock, SteppedClock) else SteppedClock()
        self._view: dict[str, dict[str, Any]] = {}
        self._in_flight: deque[tuple[Any, ModelRunnerOutput]] = deque()
        self.link = FakeLink(self._memory)
        self.records: list[dict[str, Any]] = []
        self.last: Any = None
        """What the last step was made of."""
        self.aborted: set[str] = set()
        self.computed_again: dict[str, int] = {}
        """Per request, the tokens that were computed although they had been before."""
        self._reached: dict[str, int] = {}
        self.did: dict[str, str] = {}
        """Per request, what the runner last did for it: `prefill`, `recompute` or `decode`."""
        self._valid: dict[str, int] = {}
        # An asynchronous scheduler leaves the drafts to the runner.
        self._drafts_itself = isinstance(scheduler, AsyncScheduler)
        self._drafter = Random(0)
        self.accepted_drafts = 0
        """Draft tokens that the model has confirmed."""

    @property
    def parts(self) -> Parts:
        """The collaborators of Caesura's scheduler."""
        parts: Parts = self.scheduler.parts
        return parts

    @property
    def now(self) -> float:
        return self._clock.now

    @now.setter
    def now(self, seconds: float) -> None:
        self._clock.now = seconds

    def drop_kv(self, request_id: str) -> None:
        """Give up all blocks of a paused request; what is not evicted meanwhile is found again."""
        manager = self.parts.manager
        manager.drop(manager.paused_kvs[request_id], self.now, "reset")

    def sleep(self) -> None:
        """Sleep as vLLM's engine core does, at level 1 or 2 with mode `keep`: all KV is lost."""
        self._sleep(PauseState.PAUSED_ALL, 100)

    def sleep_when_drained(self) -> None:
        """Sleep with mode `wait`: what holds KV ends or pauses first, and nothing else begins."""
        self._sleep(PauseState.PAUSED_NEW, 5000)

    def _sleep(self, state: PauseState, steps: int) -> None:
        self.scheduler.set_pause_state(state)
        for _ in range(steps):
            if not self.scheduler.has_requests() and not self._in_flight:
                break
            self.step()
            self.drain()
        else:
            raise AssertionError("the engine does not come to rest")
        self.scheduler.reset_prefix_cache(reset_running_requests=True, reset_connector=True)
        self._memory.clear()

    @property
    def in_flight(self) -> int:
        """How many steps are under way."""
        return len(self._in_flight)

    def wake_up(self) -> None:
        """Go on, with KV memory that holds nothing."""
        self.scheduler.set_pause_state(PauseState.UNPAUSED)

    # -- clients ---------------------------------------------------------------------------------

    def session(
        self,
        request_id: str,
        prompt: Iterable[int],
        *texts: str,
        watched: bool = True,
        formats: tuple[str, ...] = ("inline",),
        pauses: dict[str, PauseHint] | None = None,
    ) -> Session:
        """Start a session: decoded text, result, decoded text, ...; the last ends its turn."""
        parts = [list(text.encode()) for text in texts]
        parts[-1].append(END)
        session = Session(request_id, list(prompt), parts, formats, pauses or {})
        self.sessions[request_id] = session
        self._add(session, session.prompt, resumable=True, watched=watched)
        return session

    def plain(
        self,
        request_id: str,
        prompt: Iterable[int],
        text: str = "ok",
        max_tokens: int = 1000,
        **extra: str,
    ) -> Session:
        """Start a request that nobody pauses; `extra` are further `extra_args` of it."""
        session = Session(request_id, list(prompt), [[*text.encode(), END]], formats=())
        self.sessions[request_id] = session
        request = self._request(request_id, session.prompt, False, None, max_tokens, extra)
        self.scheduler.add_request(request)
        return session

    def answer(self, session: Session) -> None:
        """The tool of a paused session returns: push the last token again, and the result."""
        assert session.paused
        session.paused = False
        result = session.parts[session.position + 1]
        session.position += 2
        last = session.parts[session.position - 2][-1]
        self._add(session, [last, *result], resumable=True, watched=True, turn="begun")

    def goodbye(self, session: Session) -> None:
        """Close the input of a session, as vLLM's frontend does: a final, empty request."""
        self.scheduler.add_request(self._request(session.request_id, [0], False, None))

    def abort(self, session: Session) -> None:
        session.finished = True
        self.aborted.add(session.request_id)
        self.scheduler.finish_requests(session.request_id, RequestStatus.FINISHED_ABORTED)

    def _add(
        self,
        session: Session,
        tokens: list[int],
        resumable: bool,
        watched: bool,
        turn: str = "fresh",
    ) -> None:
        tools = ("calc", *session.pauses)
        plan = WatchPlan(session.formats, tools, (), turn, session.pauses) if watched else None  # type: ignore[arg-type]
        self.scheduler.add_request(self._request(session.request_id, tokens, resumable, plan))

    def _request(
        self,
        request_id: str,
        tokens: list[int],
        resumable: bool,
        plan: WatchPlan | None,
        max_tokens: int = 1000,
        extra: Mapping[str, Any] | None = None,
    ) -> Request:
        watch = {WATCH_KEY: plan.to_wire()} if plan else {}
        params = SamplingParams(
            max_tokens=max_tokens, extra_args={**watch, **(extra or {})} or None
        )
        params.update_from_generation_config({}, END)
        return Request(
            request_id=request_id,
            prompt_token_ids=list(tokens),
            sampling_params=params,
            pooling_params=None,
            block_hasher=get_request_block_hasher(self.scheduler.hash_block_size, sha256),
            resumable=resumable,
        )

    # -- the engine ------------------------------------------------------------------------------

    def step(self) -> int:
        """One step of the engine; returns the number of tokens scheduled."""
        self.now += 1.0
        self.last = output = self.scheduler.schedule()
        self._in_flight.append((output, self._run(output)))
        if len(self._in_flight) > self.depth:
            self._deliver()
            self._propose()
        self.check()
        return int(output.total_num_scheduled_tokens)

    def drain(self) -> None:
        """Deliver what is in flight."""
        while self._in_flight:
            self._deliver()
        self.check()

    def run(self, steps: int = 400, answer: bool = True) -> None:
        """Step until every session has finished, answering every pause at once."""
        for _ in range(steps):
            if all(session.finished for session in self.sessions.values()):
                self.drain()
                while self.scheduler.has_requests():
                    self.step()
                    self.drain()
                return
            self.step()
            for session in self.sessions.values():
                if answer and session.paused and not session.finished:
                    self.answer(session)
        raise AssertionError(
            f"not finished after {steps} steps: {self.scheduler.parts.engine.snapshot()}"
        )

    def check(self) -> None:
        """The invariant of every step: all blocks are accounted for."""
        if not hasattr(self.scheduler, "parts"):
            return
        state = self.scheduler.parts.engine.snapshot()
        assert state["lost_blocks"] == 0, state
        waiting = [*self.scheduler.waiting, *self.scheduler.kv_holding_waiting]
        waiting += self.parts.port.parked()
        ids = [request.request_id for request in [*waiting, *self.scheduler.running]]
        # Those that end while their KV is being loaded keep their blocks until it is.
        alive = [r.request_id for r in self.scheduler.requests.values() if not r.is_finished()]
        assert sorted(ids) == sorted(alive), "a request is in exactly one queue"

    def _deliver(self) -> None:
        for of_client in self.scheduler.update_from_output(*self._in_flight.popleft()).values():
            if of_client.scheduler_stats is not None:
                stats = of_client.scheduler_stats.kv_connector_stats or {}
                self.records.extend(stats.get("records", ()))
            for output in of_client.outputs:
                session = self.sessions.get(output.request_id)
                if session is None or session.finished:
                    continue
                session.delivered.extend(output.new_token_ids)
                if output.finish_reason is None:
                    continue
                report = (output.kv_transfer_params or {}).get(REPORT_KEY, {})
                session.reports.append(report)
                session.paused = bool(report.get("paused"))
                session.finished = not session.paused
                if session.paused:  # nor do those behind the end of the call
                    context = self.scheduler.requests[output.request_id].num_tokens
                    self._valid[output.request_id] = min(
                        context - 1, self._valid[output.request_id]
                    )
                if session.finished and report:
                    self.goodbye(session)

    def _run(self, output: Any) -> ModelRunnerOutput:
        """The model runner: compute KV, sample where a sequence's end is reached."""
        orders = output.kv_connector_metadata
        if orders is not None:
            self.link.begin(orders)
        self._forget_gone(output)
        for block in output.new_block_ids_to_zero or ():
            self._memory.overwrite(block)
        assert not output.kv_cache_block_copies, "no layout here caches parts of blocks"
        for new in output.scheduled_new_reqs:
            tokens = getattr(new, "prefill_token_ids", None) or new.prompt_token_ids
            self._view[new.req_id] = {
                "tokens": list(tokens),
                "blocks": [list(ids) for ids in new.block_ids],
                "computed": new.num_computed_tokens,
                "prompt": len(new.prompt_token_ids),
            }
        cached = output.scheduled_cached_reqs
        for index, request_id in enumerate(cached.req_ids):
            fresh = cached.new_block_ids[index]
            if request_id in cached.resumed_req_ids:
                self._forget(request_id)
                self._view[request_id] = {
                    "tokens": list(cached.all_token_ids[request_id]),
                    "blocks": [list(ids) for ids in fresh],
                    "computed": cached.num_computed_tokens[index],
                    # Its view is gone if it was preempted, and with it the prompt's length.
                    "prompt": len(cached.all_token_ids[request_id])
                    - cached.num_output_tokens[index],
                }
                continue
            view = self._view[request_id]
            for known, ids in zip(view["blocks"], fresh or (), strict=False):
                known.extend(ids)
            if not self.depth and cached.num_computed_tokens[index] < view["computed"]:
                # A load that joined the last step failed: what was decoded on it does not count.
                view["computed"] = cached.num_computed_tokens[index]
                del view["tokens"][view["prompt"] + cached.num_output_tokens[index] :]
        ids = list(output.num_scheduled_tokens)
        drafts = output.scheduled_spec_decode_tokens
        sampled = [self._compute(r, output.num_scheduled_tokens[r], drafts.get(r, ())) for r in ids]
        return ModelRunnerOutput(
            req_ids=ids,
            req_id_to_index={request_id: index for index, request_id in enumerate(ids)},
            sampled_token_ids=sampled,
            kv_connector_output=self.link.end() if orders is not None else None,
        )

    def _forget_gone(self, output: Any) -> None:
        """Forget finished and preempted requests."""
        for request_id in {*output.finished_req_ids, *(output.preempted_req_ids or ())}:
            self._view.pop(request_id, None)
            if output.total_num_scheduled_tokens:  # otherwise vLLM's first runner forgets nothing
                self._forget(request_id)
        if self.scheduler.use_v2_model_runner:  # its second one begins anew with each request
            for new in output.scheduled_new_reqs:
                self._forget(new.req_id)

    def _forget(self, request_id: str) -> None:
        for layer in self._layers:
            layer.forget(request_id)

    def _propose(self) -> None:
        """Hand drafts for the next step to a synchronous scheduler, as the engine core does."""
        if self._drafts_itself or not self.scheduler.num_spec_tokens:
            return
        ids = [one for one in self.last.num_scheduled_tokens if one in self._view]
        drafts = [self._drafts(one, self.scheduler.num_spec_tokens) for one in ids]
        self.scheduler.update_draft_token_ids(DraftTokenIds(ids, drafts))

    def _drafts(self, request_id: str, count: int) -> list[int]:
        """Draw drafts: what the plan says, wrong from some place on."""
        known, plan = len(self._view[request_id]["tokens"]), self.sessions[request_id].plan
        right = self._drafter.randrange(count + 1)
        return [*plan[known : known + right], *[7] * count][:count]

    def _compute(self, request_id: str, count: int, drafts: Sequence[int]) -> list[int]:
        view = self._view[request_id]
        if drafts and self._drafts_itself:
            drafts = self._drafts(request_id, len(drafts))
        tokens, blocks, start = [*view["tokens"], *drafts], view["blocks"], view["computed"]
        end = start + count
        assert end <= len(tokens), f"{request_id}: scheduled past its own tokens"
        assert not drafts or end == len(tokens), f"{request_id}: drafts behind a gap"
        known = len(tokens) - len(drafts)
        again = min(end, self._reached.get(request_id, 0)) - start
        self.computed_again[request_id] = self.computed_again.get(request_id, 0) + max(0, again)
        self._reached[request_id] = max(min(end, known), self._reached.get(request_id, 0))
        self._note_what_for(request_id, start, known)
        if self.link.spoiled(blocks[0]):
            view["computed"] = end
            return [0] if end >= known else []
        hashes = _prefix_hashes(tokens[:end])
        for layer, own in zip(self._layers, blocks, strict=True):
            layer.compute(own, hashes, start, request_id)
        sampled: list[int] = []
        if end >= known:
            sampled = self._sample(request_id, tokens[:known], drafts)
            view["tokens"].extend(sampled)
            end = len(view["tokens"]) - 1  # drafts that were rejected do not count
        for layer, own in zip(self._layers, blocks, strict=True):
            # Only with drafts the states of a step are kept apart.
            ends = range(start + 1, end + 1) if drafts else [end]
            layer.finish(own, hashes, ends, request_id)
        view["computed"] = end
        self._valid[request_id] = max(end, self._valid.get(request_id, 0))
        return sampled

    def _sample(self, request_id: str, tokens: list[int], drafts: Sequence[int]) -> list[int]:
        """Return the tokens that the model confirms of the drafts, and the one behind them."""
        sampled = [self._next(request_id, tokens)]
        for draft in drafts:
            if draft != sampled[-1]:
                break
            sampled.append(self._next(request_id, [*tokens, *sampled]))
            self.accepted_drafts += 1
        return sampled

    def _note_what_for(self, request_id: str, start: int, known: int) -> None:
        if start == known - 1 and start >= self.scheduler.requests[request_id].num_prompt_tokens:
            self.did[request_id] = "decode"
        else:
            again = start < self._valid.get(request_id, 0)
            self.did[request_id] = "recompute" if again else "prefill"

    def _next(self, request_id: str, tokens: list[int]) -> int:
        session = self.sessions[request_id]
        plan = session.plan
        if session.finished or len(tokens) >= len(plan):
            return 0
        if not session.paused:
            assert tokens[: len(plan)] == plan[: len(tokens)], f"{request_id}: wrong context"
        return plan[len(tokens)]


def _prefix_hashes(tokens: list[int]) -> list[int]:
    hashes, current = [], 0
    for token in tokens:
        current = hash((current, token))
        hashes.append(current)
    return hashes
