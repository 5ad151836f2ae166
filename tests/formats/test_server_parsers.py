"""The tool parsers that vLLM's server is given: whole and streamed, in any pieces."""

import json
import random
from typing import Any

import pytest
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionToolsParam

from caesura.scheduler.vllm.client.tool_parsers import GlmToolParser, Qwen3CoderToolParser

PAGE = "<html>\n" + "<p>one & two</p>\n" * 40 + "</html>"
TOOL = ChatCompletionToolsParam(
    type="function",
    function={
        "name": "write",
        "parameters": {
            "type": "object",
            "properties": {"path": {"type": "string"}, "text": {"type": "string"}},
        },
    },
)
CODER = (
    "Two files.\n<tool_call>\n<function=write>\n<parameter=path>\na.html\n</parameter>\n"
    f"<parameter=text>\n{PAGE}\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n"
    "<function=write>\n<parameter=path>\nb\n</parameter>\n</function>\n</tool_call>"
)
GLM = (
    "Two files.\n<tool_call>write\n<arg_key>path</arg_key>\n<arg_value>a.html</arg_value>\n"
    f"<arg_key>text</arg_key>\n<arg_value>{PAGE}</arg_value>\n</tool_call>\n"
    "<tool_call>write\n<arg_key>path</arg_key>\n<arg_value>b</arg_value>\n</tool_call>"
)
CASES = [(Qwen3CoderToolParser, CODER), (GlmToolParser, GLM)]
EXPECTED = [{"path": "a.html", "text": PAGE}, {"path": "b"}]


def parser(made: Any) -> Any:
    return made(None, [TOOL])


@pytest.mark.parametrize(("made", "text"), CASES)
def test_a_whole_answer(made: Any, text: str) -> None:
    found = parser(made).extract_tool_calls(text, None)
    assert found.tools_called
    assert found.content.strip() == "Two files."
    assert [call.function.name for call in found.tool_calls] == ["write", "write"]
    assert [json.loads(call.function.arguments) for call in found.tool_calls] == EXPECTED


@pytest.mark.parametrize(("made", "text"), CASES)
@pytest.mark.parametrize("seed", range(5))
def test_an_answer_in_pieces(made: Any, text: str, seed: int) -> None:
    chance = random.Random(seed)
    reading, said = parser(made), ""
    names: dict[int, str] = {}
    arguments = {0: "", 1: ""}
    at = 0
    while at < len(text):
        piece = text[at : (at := at + chance.randint(1, 30))]
        delta = reading.extract_tool_calls_streaming("", "", piece, (), (), (), None)
        if delta is None:
            continue
        said += delta.content or ""
        for call in delta.tool_calls:
            if call.function.name:
                names[call.index] = call.function.name
            arguments[call.index] += call.function.arguments or ""
    assert said.strip() == "Two files."
    assert names == {0: "write", 1: "write"}
    assert [json.loads(each) for each in arguments.values()] == EXPECTED
    assert reading.get_remaining_unstreamed_args() == ""


@pytest.mark.parametrize(("made", "text"), CASES)
def test_an_unfinished_call_is_text(made: Any, text: str) -> None:
    cut = text[: text.index("</html>")]
    found = parser(made).extract_tool_calls(cut, None)
    assert not found.tools_called
    assert "write" in found.content
