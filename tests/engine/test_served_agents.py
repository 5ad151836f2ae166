"""The example of functions and agents by name, on the real engine beside vLLM's own server."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest

from caesura.runtime.sdk.configured import ConfiguredAgents
from caesura.runtime.server import ServerParts, create_app
from caesura.runtime.server.listen import listening
from caesura.scheduler.vllm.client.engine import VllmEngine
from caesura.tools.config.caesura_toml import Config

pytestmark = pytest.mark.engine

EXAMPLE = Path(__file__).parents[2] / "examples" / "19_served" / "caesura.toml"
BLOCK = 16
"""The tokens of a block of the KV cache."""


@pytest.fixture
async def client(engine: VllmEngine) -> AsyncIterator[Any]:
    config = Config.load(EXAMPLE)
    async with config.toolset() as toolset, engine.backend.server() as vllm:
        agents = ConfiguredAgents(config, toolset, engine).served()
        app = create_app(engine, toolset.registry, parts=ServerParts(vllm=vllm, agents=agents))
        async with listening(app, shutdown_timeout=0.1) as port:
            url = f"http://127.0.0.1:{port}/v1"
            async with openai.AsyncOpenAI(base_url=url, api_key="-") as made:
                yield made


async def test_an_agent_answers_beside_the_model(
    engine: VllmEngine, client: Any, settled: Any
) -> None:
    names = [model.id async for model in client.models.list()]
    assert names == [engine.model, "clerk", "storekeeper"]

    async def ask(model: str, text: str) -> Any:
        messages = [{"role": "user", "content": text}]
        return await client.chat.completions.create(
            model=model, messages=messages, temperature=0, max_tokens=200
        )

    first = await ask("clerk", "How much do 7 lamps cost?")
    made = first.model_extra["caesura"]["calls"]
    assert [(call["name"], call["content"]) for call in made][:1] == [("price", "24")]
    assert "168" in first.choices[0].message.content
    plain = await ask(engine.model, "How much do 7 lamps cost?")
    assert plain.choices[0].message.tool_calls is None
    assert "168" not in plain.choices[0].message.content


async def test_what_comes_before_a_clients_words_is_computed_once(
    client: Any, settled: Any
) -> None:
    """Another session of the agent finds its instructions and tools in the prefix cache."""
    asked: list[Any] = []
    for text in ("How much is a lamp?", "How much is a chair?"):
        response = await client.responses.create(
            model="clerk", input=text, temperature=0, max_output_tokens=200, store=False
        )
        asked.append(response.usage)
    begin = await client.responses.input_tokens.count(model="clerk", input="")
    cached = asked[1].input_tokens_details.cached_tokens
    assert cached >= begin.input_tokens - 2 * BLOCK > 100
