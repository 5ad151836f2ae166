"""Stock vLLM applies a token twice to a recurrent state, in a streaming session that goes on.

Run it with vLLM 0.32 or 0.33, on any machine, without weights: `python vllm_streaming_state.py`. It
builds vLLM's scheduler and KV cache manager for a model with a group of full attention and one of
Mamba, and runs them around a model runner whose state is the tuple of the tokens applied to it.
"""

import argparse
import sys
import tempfile
from collections import deque
from typing import Any

import torch
from transformers import LlamaConfig
from vllm import SamplingParams
from vllm.config import (
    CacheConfig,
    ModelConfig,
    ParallelConfig,
    SchedulerConfig,
    VllmConfig,
)
from vllm.utils.import_utils import resolve_obj_by_qualname
from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    MambaSpec,
)
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

ASYNC = "vllm.v1.core.sched.async_scheduler.AsyncScheduler"
SYNC = "vllm.v1.core.sched.scheduler.Scheduler"
STOP = 7
PROMPT = [30, 31, 32, 33, 34, 35, 36, 37]
CHUNK = [20, 21, 22, 23]


def make_scheduler(name: str) -> Any:
    """Build the scheduler of that name; a KV cache group of states has one block a request."""
    with tempfile.TemporaryDirectory() as folder:
        sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
        heads = {"num_attention_heads": 1, "num_key_value_heads": 1, "vocab_size": 64}
        LlamaConfig(**sizes, **heads, architectures=["LlamaForCausalLM"]).save_pretrained(folder)
        model = ModelConfig(folder, skip_tokenizer_init=True, dtype="float32", max_model_len=256)
    config = VllmConfig(
        model_config=model,
        scheduler_config=SchedulerConfig(
            max_model_len=256, max_num_batched_tokens=256, is_encoder_decoder=False
        ),
        cache_config=CacheConfig(block_size=16, enable_prefix_caching=False),
        parallel_config=ParallelConfig(),
    )
    config.scheduler_config.async_scheduling = "Async" in name  # the CPU platform switches it off
    config.cache_config.num_gpu_blocks = 64
    register_all_kvcache_specs(config)
    attention = FullAttentionSpec(block_size=16, num_kv_heads=1, head_size=1, dtype=torch.float32)
    states = MambaSpec(block_size=256, shapes=((1, 1),), dtypes=(torch.float32,))
    groups = [KVCacheGroupSpec(["attention"], attention), KVCacheGroupSpec(["states"], states)]
    return resolve_obj_by_qualname(name)(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(num_blocks=64, kv_cache_tensors=[], kv_cache_groups=groups),
        block_size=256,
        hash_block_size=16,
        log_stats=False,
        structured_output_manager=StructuredOutputManager(config),
    )


class Runner:
    """A model runner that knows what the scheduler sends it, and applies tokens to states."""

    def __init__(self) -> None:
        self.states: dict[int, list[int]] = {}
        """The tokens applied so far, by block."""
        self.requests: dict[str, dict[str, Any]] = {}
        self.faults: list[str] = []

    def run(self, output: Any) -> ModelRunnerOutput:
        """Apply a step's tokens, and sample a token for each request that has no further ones."""
        for new in output.scheduled_new_reqs:
            self.requests[new.req_id] = {
                "tokens": list(new.prompt_token_ids),
                "computed": new.num_computed_tokens,
                "block": new.block_ids[1][0],
            }
        sampled = [self.compute(one, count) for one, count in output.num_scheduled_tokens.items()]
        ids = list(output.num_scheduled_tokens)
        places = {request_id: place for place, request_id in enumerate(ids)}
        return ModelRunnerOutput(ids, places, sampled)

    def compute(self, request_id: str, count: int) -> list[int]:
        """Compare the state with the tokens that count as computed, and apply `count` more."""
        view = self.requests[request_id]
        tokens, start = view["tokens"], view["computed"]
        state = self.states.setdefault(view["block"], []) if start else []
        if state != tokens[:start]:
            self.faults.append(
                f"{start} tokens count as computed, but the state is that of {len(state)}:"
                f" {state[-3:]} at its end instead of {tokens[max(0, start - 3) : start]}"
            )
        view["computed"] = start + count
        self.states[view["block"]] = [*state, *tokens[start : start + count]]
        if view["computed"] < len(tokens):
            return []
        begun = tokens.index(CHUNK[0]) + len(CHUNK) if CHUNK[0] in tokens else len(PROMPT)
        decoded = len(tokens) - begun  # in this turn, which ends at its fourth token
        tokens.append(STOP if decoded == 3 else 10 + decoded)
        return [tokens[-1]]


def chunk_of(tokens: list[int]) -> Request:
    """Return a chunk of a streaming session."""
    params = SamplingParams(max_tokens=100, stop_token_ids=[STOP])
    params.update_from_generation_config({}, None)
    return Request("session", list(tokens), params, None, resumable=True)


def find_faults(name: str) -> list[str]:
    """Return what was wrong with the state in a session of two turns, under that scheduler."""
    scheduler, runner = make_scheduler(name), Runner()
    in_flight: deque[Any] = deque()
    depth = int("Async" in name)
    scheduler.add_request(chunk_of(PROMPT))
    chunks = [CHUNK]
    for _ in range(30):
        output = scheduler.schedule()
        in_flight.append((output, runner.run(output)))
        if len(in_flight) > depth:
            scheduler.update_from_output(*in_flight.popleft())
        session = scheduler.requests["session"]
        if chunks and session.status == RequestStatus.WAITING_FOR_STREAMING_REQ:
            scheduler.add_request(chunk_of(chunks.pop()))
    assert not chunks, "the first turn did not end"
    return runner.faults


def main() -> int:
    """Print what was found; return 1 if a state was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("schedulers", nargs="*", default=[SYNC, ASYNC])
    found = {name: find_faults(name) for name in parser.parse_args().schedulers}
    for name, faults in found.items():
        print(name.rpartition(".")[2], "right" if not faults else "WRONG: " + faults[0], sep=": ")
    return int(any(found.values()))


if __name__ == "__main__":
    sys.exit(main())
