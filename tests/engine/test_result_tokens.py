"""Results are cut by the model's own tokens."""

import pytest

from caesura.scheduler.vllm.client.engine import VllmEngine
from caesura.tools import Dispatcher, Registry, ToolCall, tool
from caesura.tools.context import ToolRun
from caesura.tools.result import ResultLimits

pytestmark = pytest.mark.engine

TEXT = 'Caesura, n.: a pause {"x": [1, 2.5]} äöü \U0001f600 in the middle of a line. ' * 60


async def test_a_result_has_as_many_of_the_models_tokens_as_are_allowed(engine: VllmEngine):
    @tool(max_result_tokens=100)
    async def read() -> str:
        """Read."""
        return TEXT

    limits = ResultLimits.of_model(engine.count_tokens, engine.context_tokens)
    session = Dispatcher(Registry([read]), ToolRun(results=limits))
    content = (await session.run(ToolCall("c", "read", "{}"))).content
    whole = len(engine.tokenizer.encode(TEXT, add_special_tokens=False))
    assert f"[cut: {whole} tokens in all, " in content
    tokens = len(engine.tokenizer.encode(content, add_special_tokens=False))
    assert 90 <= tokens <= 100
