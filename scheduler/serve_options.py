"""What each option of `vllm serve` does behind `caesura serve`, whose port two servers share.

Some routes are answered by Caesura's sessions, the others by vLLM's own application. An option must
act on both, or it is refused by name. This module is data, so that nothing of vLLM is loaded.
"""

from collections.abc import Sequence
from enum import Enum

from caesura.scheduler.errors import UsageError


class Acts(Enum):
    """Where an option acts."""

    BELOW = "in the engine, below all routes"
    EVERYWHERE = "on all routes that it concerns"
    VLLMS_ALONE = "on routes or fields that only vLLM's server has"
    REFUSED = "nowhere, so it is refused"


_BEFORE = "give it to `caesura serve`, before `--`"
_ONE_SERVER = "`caesura serve` is one process with one engine; `vllm serve` has this option"
_TLS = "put a proxy with TLS in front of it"
_ACCESS_LOG = "give --access-log to `caesura serve`, before `--`"
_SOCKETS = "connections have bounds of their own; see `caesura serve --help`"
_CORS = "give --allowed-origin to `caesura serve`, before `--`; any method and header is then taken"
_OWN_CLASS = "the engine needs Caesura's own class"

REFUSED = {
    "model_tag": "name the model before `--`",
    "model": _BEFORE,
    "served_model_name": _BEFORE,
    "host": _BEFORE,
    "port": _BEFORE,
    "api_key": _BEFORE,
    "allowed_origins": "give --allowed-origin to `caesura serve`, before `--`",
    "allow_credentials": _CORS,
    "allowed_methods": _CORS,
    "allowed_headers": _CORS,
    "config": "write its options behind `--`",
    "headless": _ONE_SERVER,
    "api_server_count": _ONE_SERVER,
    "grpc": _ONE_SERVER,
    "grpc_port": _ONE_SERVER,
    "uds": _ONE_SERVER,
    "tokens_only": _ONE_SERVER,
    "data_parallel_multi_port_external_lb": _ONE_SERVER,
    "data_parallel_supervisor_port": _ONE_SERVER,
    "dp_supervisor_probe_interval_s": _ONE_SERVER,
    "dp_supervisor_probe_timeout_s": _ONE_SERVER,
    "dp_supervisor_probe_failure_threshold": _ONE_SERVER,
    "ssl_keyfile": _TLS,
    "ssl_certfile": _TLS,
    "ssl_ca_certs": _TLS,
    "enable_ssl_refresh": _TLS,
    "ssl_cert_reqs": _TLS,
    "ssl_ciphers": _TLS,
    "root_path": "let the proxy in front of it remove the prefix",
    "middleware": "it would guard only a part of the routes; put a proxy in front of it",
    "h11_max_incomplete_event_size": _SOCKETS,
    "h11_max_header_count": _SOCKETS,
    "uvicorn_log_level": _ACCESS_LOG,
    "disable_uvicorn_access_log": _ACCESS_LOG,
    "disable_access_log_for_endpoints": _ACCESS_LOG,
    "enable_request_id_headers": "every answer has the header X-Request-Id; leave it out",
    "skip_tokenizer_init": "messages are rendered with the model's tokenizer",
    "response_role": "every answer has the role `assistant`",
    "return_tokens_as_token_ids": "set the field return_tokens_as_token_ids in requests instead",
    "tool_strict_level": "set `strict` in the tools of requests instead",
    "tool_server": "name MCP servers in caesura.toml",
    "enable_log_outputs": "record them with --trace-content, before `--`",
    "enable_log_deltas": "record outputs with --trace-content, before `--`",
    "max_log_len": "the log holds no prompts; record them with --trace-content, before `--`",
    "enable_per_request_metrics": "the times of each request are in traces",
    "enable_server_load_tracking": "read caesura_requests_in_flight in /metrics instead",
    "enable_force_include_usage": "send stream_options: {include_usage: true} in requests instead",
    "sse_keep_alive_interval": "every idle stream gets a comment every 15 s",
    "reasoning_effort_map": "set chat_template_kwargs in requests instead",
    "anthropic_disabled_thinking_effort": "set chat_template_kwargs in requests instead",
    "log_error_stack": "start with --verbose, before `--`",
    "fingerprint_mode": "the fingerprint is in answers of vLLM's routes alone; leave it out",
    "fingerprint_value": "the fingerprint is in answers of vLLM's routes alone; leave it out",
    "default_mm_loras": "name adapters with --lora-modules, and ask for them as `model`",
    "allowed_local_media_path": "send files as data URLs",
    "scheduler_cls": _OWN_CLASS,
}
"""Options that are refused, with what to do instead."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_EVERYWHERE = _names(
    """
    chat_template chat_template_content_format cohere_format default_chat_template_kwargs
    enable_auto_tool_choice enable_prompt_tokens_details exclude_tools_when_tool_choice_none
    lora_modules tool_call_parser tool_parser_plugin
    """
)
_VLLMS_ALONE = _names(
    """
    cohere_is_reasoning_model disable_fastapi_docs enable_flash_late_interaction
    enable_offline_docs enable_scale_out enable_tokenizer_info_endpoint
    trust_request_chat_template trust_request_mm_kwargs
    """
)
"""Routes that Caesura does not have, and fields that its routes refuse by name."""
_BELOW = _names(
    """
    additional_config aggregate_engine_logging all2all_backend allow_deprecated_quantization
    allowed_media_domains async_scheduling attention_backend attention_config aux_output_config
    block_size code_revision collect_detailed_traces compilation_config config_format convert
    cp_kv_cache_interleave_size cpu_distributed_timeout_seconds cpu_offload_gb
    cpu_offload_params cudagraph_capture_sizes cudagraph_metrics custom_histogram_buckets
    data_parallel_address data_parallel_backend data_parallel_external_lb
    data_parallel_hybrid_lb data_parallel_rank data_parallel_rpc_port data_parallel_size
    data_parallel_size_local data_parallel_start_rank dbo_decode_token_threshold
    dbo_prefill_token_threshold dcp_comm_backend dcp_kv_cache_interleave_size dcp_q_replicate
    decode_context_parallel_size device_ids diffusion_config disable_cascade_attn
    disable_chunked_mm_input disable_custom_all_reduce disable_hybrid_kv_cache_manager
    disable_log_stats disable_nccl_for_dp_synchronization disable_sliding_window
    distributed_executor_backend distributed_timeout_seconds download_dir dp_sync_interval dtype
    ec_manager_config ec_transfer_config elastic_ep_max_dp_size enable_batch_sharded_sampling
    enable_chunked_prefill enable_cumem_allocator enable_dbo enable_elastic_ep
    enable_ep_weight_filter enable_eplb enable_expert_parallel enable_fault_tolerance
    enable_flashinfer_autotune enable_hc_sp enable_layerwise_nvtx_tracing enable_log_requests
    enable_logging_iteration_details enable_lora enable_mamba_cache_stochastic_rounding
    enable_mamba_shared_prefix_checkpoint enable_mfu_metrics enable_mixed_moe_lora_format
    enable_mm_embeds enable_moe_shared_loras enable_nccl_comm_suspend enable_prefix_caching
    enable_prompt_embeds enable_return_routed_experts enable_shm_tensor_arena enable_sleep_mode
    enable_tower_connector_lora enable_trace_replay enforce_eager engram_config eplb_config
    expert_placement_strategy fail_on_environ_validation fault_tolerance_config
    fully_sharded_loras gdn_prefill_backend generation_config gpu_memory_utilization
    hf_config_path hf_overrides hf_token ignore_patterns interleave_mm_strings
    io_processor_plugin ir_op_priority jit_monitor_mode jit_monitor_verbose kda_decode_backend
    kda_prefill_backend kernel_config kv_cache_dtype kv_cache_dtype_skip_layers
    kv_cache_memory_bytes kv_cache_metrics kv_cache_metrics_sample kv_events_config
    kv_offloading_backend kv_offloading_size kv_sharing_fast_prefill kv_transfer_config
    language_model_only limit_mm_per_prompt linear_backend load_format logits_processors
    logprobs_mode long_prefill_token_threshold long_prefill_token_threshold_adaptive lora_dtype
    lora_target_modules mamba_backend mamba_block_size mamba_cache_dtype mamba_cache_mode
    mamba_cache_philox_rounds mamba_ssm_cache_dtype mamba_ssu_algorithm master_addr master_port
    max_cpu_loras max_cudagraph_capture_size max_logprobs max_lora_cls_labels max_lora_rank
    max_loras max_model_len max_num_active_seqs max_num_batched_tokens max_num_queued_reqs
    max_num_queued_tokens max_num_scheduled_tokens max_num_seqs max_parallel_loading_workers
    media_io_kwargs mm_device_do_normalize mm_encoder_attn_backend mm_encoder_attn_dtype
    mm_encoder_fp8_scale_path mm_encoder_fp8_scale_save_margin mm_encoder_fp8_scale_save_path
    mm_encoder_only mm_encoder_tp_mode mm_hasher_algorithm mm_ipc_gpu_memory_gb
    mm_processor_cache_gb mm_processor_cache_type mm_processor_device mm_processor_kwargs
    mm_shm_cache_max_object_size_mb mm_tensor_ipc model_class_overrides model_impl
    model_loader_extra_config moe_backend nnodes node_rank num_gpu_blocks_override numa_bind
    numa_bind_cpus numa_bind_nodes offload_backend offload_group_size offload_num_in_group
    offload_params offload_prefetch_step optimization_level otlp_traces_endpoint
    override_generation_config per_request_spec_decode_metrics performance_mode
    pipeline_parallel_size pooler_config prefill_context_parallel_size prefill_schedule_interval
    prefix_cache_retention_interval prefix_caching_hash_algo prefix_match_unit profiler_config
    log_config_file log_level
    logging_config pt_load_map_location quantization quantization_config ray_workers_use_nsight
    reasoning_config reasoning_parser reasoning_parser_plugin renderer_num_workers
    replayssm_buffer_len return_sampling_mask revision runner safetensors_load_strategy
    safetensors_prefetch_block_size safetensors_prefetch_num_threads scheduler_reserve_full_isl
    scheduling_policy seed show_hidden_metrics_for_version shutdown_timeout skip_mm_profiling
    sleep_mode_offload_cudagraph sleep_preserve_parameter_names sparse_indexer_topk_backend
    spec_method spec_model spec_tokens specialize_active_lora speculative_config stream_interval
    structured_outputs_config swa_bounded_replay tensor_parallel_size tokenizer tokenizer_mode
    tokenizer_revision trust_remote_code ubatch_size use_fp64_gumbel use_replayssm
    use_tqdm_on_load video_pruning_method video_pruning_rate watermark watermark_config
    monokernel sleep_mode_backend watchdog_config
    weight_transfer_config worker_cls worker_extension_cls
    """
)


SHORT = {
    "--device-memory-utilization": "gpu_memory_utilization",
    "-asc": "api_server_count",
    "-q": "quantization",
    "-pp": "pipeline_parallel_size",
    "-n": "nnodes",
    "-r": "node_rank",
    "-tp": "tensor_parallel_size",
    "-dcp": "decode_context_parallel_size",
    "-pcp": "prefill_context_parallel_size",
    "-dp": "data_parallel_size",
    "-dpn": "data_parallel_rank",
    "-dpr": "data_parallel_start_rank",
    "-dpl": "data_parallel_size_local",
    "-dpa": "data_parallel_address",
    "-dpp": "data_parallel_rpc_port",
    "-dpb": "data_parallel_backend",
    "-dph": "data_parallel_hybrid_lb",
    "-dpe": "data_parallel_external_lb",
    "-dpm": "data_parallel_multi_port_external_lb",
    "-ep": "enable_expert_parallel",
    "-sc": "speculative_config",
    "-dc": "diffusion_config",
    "-cc": "compilation_config",
    "-ac": "attention_config",
}
"""Fields by their other flags."""


def acts(name: str) -> Acts | None:
    """Return where an option acts, by the name of its field; None for one that is not known."""
    if name in REFUSED:
        return Acts.REFUSED
    kinds = {Acts.BELOW: _BELOW, Acts.EVERYWHERE: _EVERYWHERE, Acts.VLLMS_ALONE: _VLLMS_ALONE}
    return next((kind for kind, names in kinds.items() if name in names), None)


def refused(name: str) -> UsageError:
    """Return the error for an option that has no effect behind `caesura serve`."""
    why = REFUSED.get(name, "this release of Caesura does not know the option; leave it out")
    return UsageError(f"--{name.replace('_', '-')} has no effect behind `--`: {why}")


def check_flags(arguments: Sequence[str]) -> None:
    """Raise `UsageError` for an option that is refused, before vLLM is loaded."""
    for argument in arguments:
        field = field_of(argument.partition("=")[0]) if argument.startswith("-") else None
        if field in REFUSED:
            raise refused(field)


def _opposite(name: str) -> str:
    for one, other in (("enable_", "disable_"), ("disable_", "enable_")):
        if name.startswith(one):
            return other + name.removeprefix(one)
    return name


def field_of(flag: str) -> str | None:
    """Return the name of the field that a flag of vLLM's sets, or None for another flag.

    A flag may set a part of a field, and `--no-` before its name switches it off. So does
    `--disable-` in the place of `--enable-`, or the other way round.
    """
    if not flag.startswith("--"):
        return SHORT.get(flag)
    name = flag.removeprefix("--").partition(".")[0].replace("-", "_")
    names = (name, name.removeprefix("no_"), _opposite(name), SHORT.get(flag))
    return next((each for each in names if each is not None and acts(each) is not None), None)
