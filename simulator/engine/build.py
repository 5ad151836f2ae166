"""Build the scheduler of a policy from vLLM's own classes, without engine or worker.

The model in vLLM's configuration is tiny and never loaded; only its longest context matters.
"""

import tempfile
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from transformers import LlamaConfig
from vllm.config import (
    CacheConfig,
    ModelConfig,
    ParallelConfig,
    SchedulerConfig,
    VllmConfig,
)
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

from caesura.scheduler.predict.facts import NO_WORDS, CallWords
from caesura.scheduler.predict.forecast import Predictor
from caesura.scheduler.predict.tables import PausePredictor
from caesura.scheduler.vllm import CaesuraScheduler
from caesura.scheduler.vllm.engine.compose import SETTINGS_KEY, Dependencies
from caesura.scheduler.vllm.engine.sessions.recorder import Recorder
from caesura.simulator.engine.check import port_of
from caesura.simulator.engine.clock import Clock
from caesura.simulator.engine.plan import Plan
from caesura.simulator.engine.tokens import Tokens
from caesura.simulator.engine.transfer import connector_config
from caesura.simulator.policy import Policy
from caesura.simulator.predict import make_predictor
from caesura.simulator.session import Segment, Session


def build_scheduler(
    plan: Plan,
    policy: Policy,
    clock: Clock,
    truth: Callable[[str], Session | None],
    tokens: Tokens,
    records: list[dict[str, Any]] | None = None,
    recorder: Recorder | None = None,
) -> Scheduler:
    """Return the scheduler; Caesura's writes `records`, or tells its events to the `recorder`.

    Caesura's scheduler also gets the workload's tokens, and the contents of sessions by key; its
    oracle, if the policy has one, reads these too.
    Raises `ValueError` for unknown settings.
    """
    config = _config(plan, policy)
    given: dict[str, Any] = {
        "vllm_config": config,
        "kv_cache_config": plan.layout.config,
        "block_size": plan.layout.block_tokens,
        "hash_block_size": plan.layout.hashed_tokens,
        "log_stats": False,
        "structured_output_manager": StructuredOutputManager(config),
    }
    scheduler: Scheduler
    if policy.engine == "caesura":
        dependencies = Dependencies(
            clock=clock,
            wall=clock,
            outbox=records,
            cost=plan.cost,
            vocabulary=tokens.vocabulary,
            predictor=_oracle(policy, truth),
            contents=PlannedContents(truth),
            recorder=recorder,
        )
        scheduler = CaesuraScheduler(**given, dependencies=dependencies)
    else:
        scheduler = Scheduler(**given)
    port_of(scheduler).use_first_runner()
    return scheduler


def _oracle(
    policy: Policy, truth: Callable[[str], Session | None]
) -> Callable[[PausePredictor], Predictor] | None:
    """Return a function that makes the policy's oracle; None without an oracle."""
    prediction = _oracle_of(policy)
    if not prediction:
        return None
    return partial(make_predictor, prediction, truth)


def _oracle_of(policy: Policy) -> str:
    """Return the spec of the policy's predictor if it is an oracle, else an empty text."""
    prediction = str(policy.settings.get("prediction", ""))
    return prediction if prediction.partition(":")[0] == "oracle" else ""


def _config(plan: Plan, policy: Policy) -> VllmConfig:
    settings = dict(policy.settings)
    if _oracle_of(policy):
        del settings["prediction"]  # the scheduler gets the oracle as a dependency
    config = VllmConfig(
        model_config=_model_config(plan.model_tokens),
        scheduler_config=SchedulerConfig(
            max_num_seqs=policy.most_running,
            # vLLM requires a token for every sequence; the budget of a step may be smaller.
            max_num_batched_tokens=max(policy.chunk_tokens, policy.most_running),
            max_num_scheduled_tokens=policy.chunk_tokens,
            max_model_len=plan.model_tokens,
            policy="priority" if policy.session_order else "fcfs",
            async_scheduling=False,
            is_encoder_decoder=False,
        ),
        cache_config=CacheConfig(
            block_size=plan.layout.attention_tokens, enable_prefix_caching=policy.prefix_caching
        ),
        parallel_config=ParallelConfig(),
        additional_config={SETTINGS_KEY: settings} if policy.engine == "caesura" else {},
    )
    # vLLM asks the model's configuration, and this one's model is tiny and has no such layers.
    config.cache_config.mamba_cache_mode = plan.layout.state_mode
    block_bytes = plan.layout.planned_bytes
    config.kv_transfer_config = connector_config(plan.host_blocks, block_bytes, policy)
    config.cache_config.num_gpu_blocks = plan.blocks + 1
    register_all_kvcache_specs(config)
    return config


@cache
def _model_config(model_tokens: int) -> ModelConfig:
    """Return the configuration of a tiny model with contexts of up to `model_tokens`."""
    with tempfile.TemporaryDirectory(prefix="caesura-sim-") as directory:
        LlamaConfig(
            hidden_size=8,
            intermediate_size=8,
            num_hidden_layers=1,
            num_attention_heads=1,
            num_key_value_heads=1,
            vocab_size=256,
            max_position_embeddings=model_tokens,
            architectures=["LlamaForCausalLM"],
        ).save_pretrained(directory)
        return ModelConfig(
            model=directory,
            skip_tokenizer_init=True,
            dtype="float32",
            max_model_len=model_tokens,
        )


class PlannedContents:
    """Looks up the words of calls and the errors of results, which the workload states."""

    def __init__(self, truth: Callable[[str], Session | None]) -> None:
        """Create it; `truth` returns the session with a key, or None if it is unknown."""
        self._truth = truth

    def words(self, session: str, calls: int, call: bytes) -> CallWords:
        """Return the hashed words of the call that ends segment `calls`."""
        segment = self._segment(session, calls)
        return segment.words if segment is not None else NO_WORDS

    def failed(self, session: str, calls: int, request: Request, tokens: int) -> bool:
        """Return whether the result of the last of `calls` calls is an error."""
        segment = self._segment(session, calls - 1)
        return segment is not None and segment.failed

    def _segment(self, session: str, index: int) -> Segment | None:
        found = self._truth(session)
        segments = found.segments if found is not None else ()
        return segments[index] if 0 <= index < len(segments) else None
