"""Prompts with pictures, by vLLM's renderer of a model that sees."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from vllm.engine.arg_utils import EngineArgs
from vllm.renderers import renderer_from_config

from caesura.scheduler.errors import UsageError
from caesura.scheduler.vllm.client.media.prompt import MediaRenderer
from caesura.scheduler.vllm.client.render import Renderer
from tests.engine.seeing import IMAGE, PLACEHOLDERS, shown, vision_model

CALL = {"id": "a", "type": "function", "function": {"name": "draw", "arguments": "{}"}}
ASKED = {"role": "user", "content": "Draw."}
DRAWN = [
    ASKED,
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {**shown("Drawn.", 1), "role": "tool", "tool_call_id": "a", "name": "draw"},
]
WITHOUT_RESULTS = (
    "{% for m in messages %}{{ m.role }}: {{ 'done' if m.role == 'tool' else m.content }}\n"
    "{% endfor %}"
)
"""A template that writes no result."""


@pytest.fixture(scope="module")
def llm() -> Any:
    config = EngineArgs(
        model=vision_model(),
        max_model_len=1024,
        limit_mm_per_prompt={"image": 2},
        kv_cache_memory_bytes=64 << 20,
        enforce_eager=True,
    ).create_engine_config()
    renderer = renderer_from_config(config)
    return SimpleNamespace(
        renderer=renderer, model_config=config.model_config, get_tokenizer=renderer.get_tokenizer
    )


def renders(llm: Any) -> MediaRenderer:
    return MediaRenderer(cast(Any, llm), Renderer(llm.get_tokenizer(), frozenset()))


async def test_a_picture_stands_in_the_result_that_holds_it(llm: Any) -> None:
    tokens, media = await renders(llm).prompt(DRAWN, [], {}, False)
    assert tokens.count(llm.get_tokenizer().convert_tokens_to_ids(IMAGE)) == PLACEHOLDERS
    text = llm.get_tokenizer().decode(tokens)
    assert text.index("<tool_response>") < text.index(IMAGE) < text.index("</tool_response>")
    prompt = media.prompt([*tokens, 9], "salt")
    assert prompt["prompt_token_ids"] == [*tokens, 9] and prompt["cache_salt"] == "salt"


async def test_a_picture_follows_where_the_template_writes_no_result(
    llm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llm.get_tokenizer(), "chat_template", WITHOUT_RESULTS)
    tokens, _ = await renders(llm).prompt(DRAWN, [], {}, False)
    text = llm.get_tokenizer().decode(tokens)
    assert text.index("tool: done\nuser:") < text.index(IMAGE)


async def test_what_cannot_be_rendered_is_said(llm: Any) -> None:
    bad = {"type": "image_url", "image_url": {"url": "data:image/png;base64,eA=="}}
    with pytest.raises(UsageError, match="the messages cannot be rendered"):
        await renders(llm).prompt([{"role": "user", "content": [bad]}], [], {}, False)
    with pytest.raises(UsageError, match="At most 2 image"):
        await renders(llm).prompt([shown("See.", 1, 2, 3)], [], {}, False)
