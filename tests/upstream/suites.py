"""Which of vLLM's test files are run: those that build a scheduler and need no GPU or weights."""

RANDOM = "tests/v1/core/test_priority_scheduler_random.py"

DEFAULT = (
    "tests/v1/streaming_input/test_scheduler_streaming.py",
    "tests/v1/streaming_input/test_async_llm_streaming.py",
    "tests/v1/core/test_scheduler.py",
    "tests/v1/core/test_async_scheduler.py",
    "tests/v1/core/test_deferred_block_free.py",
    "tests/v1/core/test_prefix_caching.py",
    "tests/v1/core/test_priority_preemption_bug.py",
    "tests/v1/core/test_prefix_replay.py",
    "tests/v1/core/test_swa_inflight_window_free.py",
    "tests/v1/core/test_worker_slot_overflow.py",
    "tests/v1/core/test_mamba_align_chunk_split.py",
    "tests/v1/core/prefix_cache/test_mamba_eagle_resume_checkpoint.py",
    "tests/v1/core/prefix_cache/test_partial_prefix_cache_hits.py",
    "tests/v1/spec_decode/test_dynamic_sd.py",
    "tests/v1/kv_connector/unit/test_cache_pollution_prevention.py",
    "tests/v1/kv_connector/unit/test_decode_bench_connector.py",
    "tests/v1/kv_connector/unit/test_error_propagation.py",
    "tests/v1/kv_connector/unit/test_invalid_blocks_correctness.py",
    "tests/v1/kv_connector/unit/test_kv_load_failure_recovery.py",
    "tests/v1/kv_connector/unit/test_remote_decode_lifecycle.py",
    "tests/v1/kv_connector/unit/test_remote_prefill_lifecycle.py",
    "tests/v1/kv_connector/unit/offloading_connector/test_scheduler.py",
    "tests/v1/core/test_pause_in_pipeline.py",
)

OURS = {"pause_in_pipeline.py": "tests/v1/core/test_pause_in_pipeline.py"}
"""Tests of this directory that need vLLM's own helpers: they are put beside its tests."""

# The quick half of a slow file: random requests under so little memory that they are preempted.
PREEMPTION = tuple(
    f"{RANDOM}::test_priority_scheduling_blast[preemption-{draft_tokens}-{prefix_caching}]"
    for draft_tokens in (None, 1, 5)
    for prefix_caching in (True, False)
)


def selection(everything: bool) -> tuple[str, ...]:
    """Return what to give pytest; `everything` adds the slow tests."""
    return (*DEFAULT, RANDOM) if everything else (*DEFAULT, *PREEMPTION)
