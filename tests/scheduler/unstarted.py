"""Engines as the API process sees them, of which none was started."""

from collections.abc import Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

from transformers import AutoTokenizer
from vllm.config import ModelConfig

from caesura.runtime.launch import BUNDLED_MODEL
from caesura.scheduler.engine_options import EngineOptions
from caesura.scheduler.vllm.client.engine import VllmEngine

TOOLS = [{"type": "function", "function": {"name": "search", "parameters": {}}}]


def engine_with(
    tokenizer: Any,
    formats: Sequence[str] | None = None,
    reasoning_parser: str = "",
    context_tokens: int = 100,
    server_options: Mapping[str, Any] | None = None,
    **config_of: Any,
) -> VllmEngine:
    config = SimpleNamespace(
        max_model_len=context_tokens,
        supports_multimodal_inputs=False,
        revision=None,
        code_revision=None,
        trust_remote_code=False,
        hf_config=SimpleNamespace(model_type="none"),
        **{
            "try_get_generation_config": dict,
            "generation_config": "auto",
            "override_generation_config": {},
            **config_of,
        },
    )
    config.get_diff_sampling_param = partial(ModelConfig.get_diff_sampling_param, config)
    vllm_config = SimpleNamespace(
        structured_outputs_config=SimpleNamespace(
            reasoning_parser=reasoning_parser, backend="auto", disable_any_whitespace=False
        )
    )
    llm: Any = SimpleNamespace(
        get_tokenizer=lambda: tokenizer,
        model_config=config,
        vllm_config=vllm_config,
        renderer=None,
    )
    return VllmEngine(
        llm,
        EngineOptions(served_name="model-x", formats=formats),
        server_options=server_options,
    )


def bundled(template: str | None) -> Any:
    tokenizer = AutoTokenizer.from_pretrained(BUNDLED_MODEL)
    tokenizer.chat_template = template
    return tokenizer
