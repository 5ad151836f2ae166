"""vLLM's private state is named in one folder only: `scheduler/vllm/engine/port`."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PORT = ROOT / "scheduler" / "vllm" / "engine" / "port"
# The API process has no scheduler; it uses vLLM's client instead.
CLIENT = ROOT / "scheduler" / "vllm" / "client"

NAMES = """
    arrival_time block_hash block_id block_pool cached_block_hash_to_block defer_block_free
    deferred_frees deferred_waiting empty_kv_cache_blocks enable_caching encoder_cache_manager
    finished_req_ids finished_req_ids_dict get_blocks get_computed_blocks get_new_blocks
    get_num_blocks_to_allocate get_num_free_blocks is_null is_prefill_chunk kv_cache_manager
    kv_holding_waiting
    max_num_active_reqs max_num_running_reqs max_num_scheduled_tokens num_computed_tokens
    num_gpu_blocks num_lookahead_tokens num_output_placeholders num_preemptions
    num_tokens_with_spec num_waiting_for_streaming_input pause_state pop_blocks_for_free
    prepend_request processed_step_seq recompute_kv_load_failures ref_cnt remove_request
    remove_requests reset_preempted_req_ids sched_step_seq status streaming_queue
    structured_output_request touch use_v2_model_runner watermark_blocks _free_request_blocks
    _inflight_prefill_reserved_blocks _inflight_prefills _request_blocks_can_be_freed
    _spec_decode_step_blocks
"""
PRIVATE = set(NAMES.split())
"""Attributes of vLLM's scheduler, KV cache manager, blocks and requests that have no promise."""

INTERFACE = {
    "add_request",
    "finish_requests",
    "has_requests",
    "kv_cache_config",
    "parts",
    "schedule",
    "shutdown",
    "update_from_output",
    "vllm_config",
}
"""What may be asked of a scheduler itself: vLLM's interface, its arguments, and our parts."""


def files() -> Iterator[Path]:
    for room in ("scheduler/vllm", "simulator/engine"):
        for path in sorted((ROOT / room).rglob("*.py")):
            if not {PORT, CLIENT} & set(path.parents):
                yield path


def private_names(source: str) -> list[str]:
    """Return the private attributes that a module names, with their lines."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Attribute):
            continue
        name = ast.unparse(node.value).rpartition(".")[2]
        of_scheduler = name in ("scheduler", "_scheduler") and node.attr not in INTERFACE
        of_config = name == "cache_config"
        if of_scheduler or (node.attr in PRIVATE and not of_config):
            found.append(f"line {node.lineno}: {ast.unparse(node)}")
    return found


@pytest.mark.parametrize("path", list(files()), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_only_the_port_names_vllms_private_state(path: Path) -> None:
    assert not private_names(path.read_text()), "ask `EngineState`, or add a method to it"


def test_the_port_itself_would_be_found() -> None:
    named = "\n".join(private_names((PORT / "v032.py").read_text()))
    assert "num_computed_tokens" in named
    assert "self._scheduler.running" in named


def test_vllm_has_what_the_port_names() -> None:
    """A name that vLLM has dropped would no longer be looked for under its new one."""
    import vllm.v1

    sources = [path.read_text() for path in Path(vllm.v1.__path__[0]).glob("**/*.py")]
    missing = {name for name in PRIVATE if not any(name in source for source in sources)}
    assert not missing
