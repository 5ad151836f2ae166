"""What families vary that write `<invoke name="NAME">`: quotes, types, and the opener."""

import json
from typing import Any

import pytest

from caesura.intercept.calls.watch import Verdict
from tests.formats.cases import NOW, SEARCH, TOOLS, check_prose
from tests.formats.readers import by_row, by_vllm
from tests.formats.rendering import RENDER
from tests.formats.world import decode, stand_in, tool

NUMBER, WHOLE, TEXT = {"type": "number"}, {"type": "integer"}, {"type": "string"}
MIXED = tool("mixed", n=NUMBER, i=WHOLE, s=TEXT, both={"type": ["string", "integer"]}, free={})


def mixed(*parameters: str) -> str:
    """A call of DeepSeek V3.2; a parameter is `KEY ATTRIBUTE=VALUE`."""
    written = "".join(
        f'<｜DSML｜parameter name="{key}"{attribute}>{value}</｜DSML｜parameter>\n'
        for key, attribute, value in (each.split("|") for each in parameters)
    )
    return (
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="mixed">\n'
        f"{written}</｜DSML｜invoke>\n</｜DSML｜function_calls>"
    )


IS_TEXT, IS_JSON = ' string="true"', ' string="false"'


@pytest.mark.parametrize("attribute", [IS_TEXT, IS_JSON, ""])
@pytest.mark.parametrize("value", ["3", "1.0", '"3"', "null", "true", "{}", "[1, 2.0]", "oak", ""])
def test_a_value_has_the_type_that_vllm_gives_it(value: str, attribute: str) -> None:
    for key in ("n", "i", "s", "both", "free", "unknown"):
        text = mixed(f"{key}|{attribute}|{value}")
        vllms = by_vllm("deepseek_v32", stand_in("deepseek_v32"), text, [MIXED])
        assert json.dumps(by_row("deepseek_v32", text, [MIXED])) == json.dumps(vllms), key


@pytest.mark.parametrize("quote", ["'", ""])
@pytest.mark.parametrize("name", ["minimax_m2", "deepseek_v32", "deepseek_v41"])
def test_names_in_other_quotes(name: str, quote: str) -> None:
    text = RENDER[name]([SEARCH]).replace('"search"', f"{quote}search{quote}")
    text = text.replace('"query"', f"{quote}query{quote}")
    assert by_row(name, text, TOOLS) == [tuple(SEARCH)]


def test_a_name_may_hold_a_quote_of_the_other_kind() -> None:
    odd: Any = {"it's": "oak"}
    text = RENDER["minimax_m2"]([SEARCH._replace(arguments=odd)])
    assert by_row("minimax_m2", text, TOOLS) == [("search", odd)]


@pytest.mark.parametrize("opener", ["<｜DSML｜toolcalls>", "<｜DSML｜tool>"])
@pytest.mark.parametrize("closed", [True, False])
def test_openers_that_deepseek_v4_misspells(opener: str, closed: bool) -> None:
    text = RENDER["deepseek_v4"]([SEARCH, NOW]).replace("<｜DSML｜tool_calls>", opener)
    text = text if closed else text.removesuffix("\n</｜DSML｜tool_calls>")
    model = stand_in("deepseek_v4")
    for step in (1, 7, len(text)):
        outcome = decode(model, model.by_bytes(text), TOOLS, step)
        calls = [(name, json.loads(raw)) for name, raw in outcome.calls]
        assert calls == [tuple(SEARCH), tuple(NOW)]
        assert outcome.verdict is Verdict.CALL


def test_a_tag_that_only_begins_like_a_call_is_text() -> None:
    model = stand_in("minimax_m2")
    for text in (
        "<minimax:tool_call> <inv",
        "<minimax:tool_call><invoice>",
        "<minimax:tool_call><i>",
    ):
        for step in (1, 3, len(text)):
            check_prose(decode(model, model.by_bytes(text), TOOLS, step), text)
