"""vLLM's real engine core in this process, on a tiny model with random weights.

Random weights make the best witness: whatever is lost or mixed up in the KV cache changes what
they say next, where a trained model might guess right all the same.
"""

import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
# By itself vLLM binds each of several workers to a NUMA node, and refuses more workers than nodes.
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from vllm import SamplingParams
from vllm.engine.arg_utils import EngineArgs
from vllm.multimodal.inputs import MultiModalFeatureSpec
from vllm.v1.engine import EngineCoreRequest
from vllm.v1.engine.core import EngineCore
from vllm.v1.executor import Executor
from vllm.v1.outputs import LogprobsLists

from caesura.intercept.calls.watch import WatchPlan
from caesura.runtime.launch import BUNDLED_MODEL
from caesura.scheduler.vllm import CaesuraScheduler
from caesura.scheduler.vllm.wire import REPORT_KEY, WATCH_KEY

VOCABULARY = 1024


def language(vocabulary: int, **options: Any) -> LlamaConfig:
    """The shape of a tiny Llama that never ends an answer by itself."""
    return LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=1024,
        initializer_range=0.2,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
        **options,
    )


@cache
def random_model() -> str:
    """A tiny Llama with random weights and the bundled model's tokenizer."""
    directory = Path(tempfile.mkdtemp(prefix="caesura-random-model-"))
    torch.manual_seed(7)
    config = language(VOCABULARY)
    LlamaForCausalLM(config).save_pretrained(directory)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(Path(BUNDLED_MODEL, name), directory / name)
    return str(directory)


@contextmanager
def streams_of_cpu() -> Iterator[None]:
    """Give PyTorch's CPU build streams and events: all work is done when it is launched."""

    class Done:
        device = torch.device("cpu")

        def __init__(self, *_: Any, **__: Any) -> None: ...

        def wait_stream(self, _: "Done") -> None: ...

        def record(self, _: "Done | None" = None) -> None: ...

        def synchronize(self) -> None: ...

    with pytest.MonkeyPatch.context() as patch:
        for name in ("Stream", "Event", "current_stream"):
            patch.setattr(torch.cuda, name, Done)
        patch.setattr(torch.cuda, "stream", nullcontext)
        yield


def _scores(found: LogprobsLists | None) -> Iterator[dict[int, float]]:
    """Yield the log probabilities of the best tokens, place by place."""
    if found is not None:
        for tokens, scores in zip(found.logprob_token_ids, found.logprobs, strict=True):
            yield dict(zip(tokens.tolist(), scores.tolist(), strict=True))


class Core:
    """An engine core, stepped by hand."""

    def __init__(
        self,
        drafts: int = 0,
        model: str | None = None,
        asynchronous: bool = False,
        **options: object,
    ) -> None:
        """Start the engine on the random model; with `drafts` it drafts that many tokens a step.

        vLLM's CPU build never schedules asynchronously, but its engine core and its model runner
        can: an `asynchronous` engine schedules a step before it sees the tokens of the last one.
        It needs `streams_of_cpu`, and a scheduler that is asynchronous.

        vLLM's n-gram speculation loads numba, and vLLM's CPU build starts no engine in a process
        in which numba was loaded before: a process starts one engine with drafts, as its last.
        """
        if drafts:
            options["speculative_config"] = {
                "method": "ngram",
                "num_speculative_tokens": drafts,
                "prompt_lookup_max": 2,
            }
        usual: dict[str, Any] = {
            "dtype": "float32",
            "enforce_eager": True,
            "max_model_len": 1024,
            "kv_cache_memory_bytes": 64 << 20,
            "block_size": 32,
            "use_tqdm_on_load": False,
            "scheduler_cls": CaesuraScheduler,
        }
        args = EngineArgs(model=model or random_model(), **{**usual, **options})
        self.config = config = args.create_engine_config()
        config.scheduler_config.async_scheduling = asynchronous
        self._core = EngineCore(config, Executor.get_class(config), log_stats=False)
        self.scheduler = self._core.scheduler
        parts = getattr(self.scheduler, "parts", None)
        self._ours = None if parts is None else parts.engine
        self.said: dict[str, list[int]] = {}
        self.reports: dict[str, dict[str, Any]] = {}
        self.scores: dict[str, list[dict[int, float]]] = {}
        """For each token of a request with `logprobs`, the log probabilities of the best ones."""
        self.cached: dict[str, int] = {}
        """How many tokens of each request had their KV at its first step."""
        self.allowed_losses = 0
        """Blocks that a test has taken out of the pool."""
        self.confirmed_drafts = 0
        self._foretold: dict[tuple[int, ...], list[int]] = {}
        """What `say` returned, by the tokens before it: it is drafted when they come again."""
        if drafts:
            worker: Any = self._core.model_executor.driver_worker.worker  # type: ignore[attr-defined]
            worker.model_runner.drafter.propose = self._propose

    def _propose(self, count: int, sampled: Any, lengths: Any, tokens: Any, **_: Any) -> Any:
        """Stand in for the n-gram drafter, whose guesses about random weights are wrong."""
        rows = [tokens[row, : lengths[row]].tolist() for row in range(len(sampled))]
        return [
            self._foretell(row)[:count] if new else []
            for row, new in zip(rows, sampled, strict=True)
        ]

    def _foretell(self, tokens: list[int]) -> list[int]:
        for context, ahead in self._foretold.items():
            said = tokens[len(context) :]
            if tuple(tokens[: len(context)]) == context and said == ahead[: len(said)]:
                return ahead[len(said) :]
        return []

    def add(
        self,
        request_id: str,
        tokens: Sequence[int],
        max_tokens: int,
        stop: int | Sequence[int] | None = None,
        resumable: bool = False,
        features: Sequence[MultiModalFeatureSpec] = (),
        salt: str | None = None,
        **sampling: Any,
    ) -> None:
        """Add a request, or a session's next chunk; a session pauses at a token of `stop`.

        `features` are the pictures whose placeholders are among the tokens. `sampling` are more of
        vLLM's parameters: with `logprobs`, `scores` tells those of so many tokens at each place.
        """
        stops = [stop] if isinstance(stop, int) else list(stop or ())
        plan = WatchPlan(("hermes",), turn="holding" if stops else "fresh")
        params = SamplingParams(
            temperature=0,
            max_tokens=max_tokens,
            ignore_eos=True,
            stop_token_ids=stops or None,
            extra_args={WATCH_KEY: plan.to_wire()} if resumable else None,
            **sampling,
        )
        params.update_from_generation_config({}, None)
        request = EngineCoreRequest(
            request_id=request_id,
            prompt_token_ids=list(tokens),
            mm_features=[replace(feature) for feature in features] or None,
            sampling_params=params,
            pooling_params=None,
            arrival_time=0.0,
            lora_request=None,
            cache_salt=salt,
            data_parallel_rank=None,
            resumable=resumable,
        )
        self.said[request_id] = []
        self.scores[request_id] = []
        self.reports.pop(request_id, None)
        self._core.add_request(*self._core.preprocess_add_request(request))

    def run(self, request_ids: Iterable[str], steps: int = 2000) -> None:
        """Step until all of these have stopped."""
        waiting = set(request_ids)
        for _ in range(steps):
            outputs, executed = self._core.step_fn()
            self._core.post_step(executed)
            for of_client in (outputs or {}).values():
                for output in of_client.outputs:
                    self.said[output.request_id].extend(output.new_token_ids)
                    self.scores[output.request_id].extend(_scores(output.new_logprobs))
                    if output.prefill_stats is not None:
                        self.cached[output.request_id] = output.prefill_stats.num_cached_tokens
                    self.confirmed_drafts += max(0, len(output.new_token_ids) - 1)
                    if output.finish_reason is not None:
                        waiting.discard(output.request_id)
                        params = output.kv_transfer_params or {}
                        self.reports[output.request_id] = params.get(REPORT_KEY, {})
            if self._ours is not None:
                assert self._ours.snapshot()["lost_blocks"] == self.allowed_losses
            if not waiting:
                return
        raise AssertionError(f"{waiting} did not stop: {self._ours and self._ours.snapshot()}")

    def idle(self, steps: int) -> None:
        """Step while no request runs, as the engine does while copies are under way."""
        for _ in range(steps):
            self._core.step_fn()

    def on_workers(self, call: Callable[..., Any], *args: Any) -> list[Any]:
        """Call a function in every worker, with the worker as its first argument."""
        replies: list[Any] = self._core.model_executor.collective_rpc(call, args=args)
        return replies

    def say(
        self, tokens: Sequence[int], count: int, features: Sequence[MultiModalFeatureSpec] = ()
    ) -> list[int]:
        """What the model says after these tokens, computed from scratch and without drafts."""
        self.scheduler.reset_prefix_cache(reset_connector=self.swaps)
        request_id = f"plain-{uuid.uuid4().hex}"
        foretold, self._foretold = self._foretold, {}
        self.add(request_id, tokens, count, features=features)
        self.run([request_id])
        self._foretold = {**foretold, tuple(tokens): self.said[request_id]}
        return self.said[request_id]

    def drop_kv(self, request_id: str) -> None:
        """Give up all blocks of a paused request."""
        parts = self.scheduler.parts
        parts.manager.drop(parts.manager.paused_kvs[request_id], parts.clock(), "reset")

    @property
    def swaps(self) -> bool:
        """Whether there is a connector, which may hold copies of KV."""
        return self.config.kv_transfer_config is not None

    def close(self) -> None:
        self._core.shutdown()
