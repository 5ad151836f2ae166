"""The table of formats, and the bytes of a vocabulary."""

import re

import pytest

from caesura.intercept.formats import NAMES, TURN_FORMATS, detect, resolve
from caesura.intercept.vocabulary import vocabulary_of


@pytest.mark.parametrize(
    ("template", "formats"),
    [
        ("... <tool_call>\n{...}</tool_call> ...", ("hermes",)),
        ("{{ '[TOOL_CALLS]' }}", ("mistral",)),
        (
            '{"name": function name, "parameters": dictionary of argument name and its value}',
            ("llama3_json",),
        ),
        ("<tool_call>\n<function={{ name }}>\n<parameter=", ("qwen3_coder",)),
        ("<tool_call>{{ name }}\n<arg_key>{{ key }}</arg_key>", ("glm",)),
        ("{{ '[' }} [func_name1(params_name1=params_value1)]", ("pythonic",)),
        ("{{ '<|python_start|>' }}", ("pythonic",)),
        ("<｜tool▁call▁begin｜>function<｜tool▁sep｜>{{ name }}\n```json", ("deepseek_v3",)),
        ("<｜tool▁call▁begin｜>{{ name }}<｜tool▁sep｜>", ("deepseek_v31",)),
        ("<|tool_calls_section_begin|><|tool_call_begin|>", ("kimi_k2",)),
        ("<|start|>assistant<|channel|>commentary<|message|><|call|>", ("harmony",)),
        ("Thought: ...\nAction: ...\nAction Input: ...", ("react",)),
        ("<tool_call> or [tool(arguments) -> result]", ("hermes", "inline")),
        ("{{ messages }}", ()),
    ],
)
def test_formats_are_read_off_the_template(template: str, formats: tuple[str, ...]) -> None:
    assert detect(template) == formats


@pytest.mark.parametrize("name", NAMES)
def test_every_row_has_all_that_it_needs(name: str) -> None:
    (form,) = resolve([name], ["search"])
    assert form.opens or form.anchors
    assert form.closes is not None or form.body == "json" or form.anchors
    assert form.pause == "turn" or form.closes is not None
    assert re.compile(form.named).groups >= 1
    assert (form.parser is not None) == (name in TURN_FORMATS) == bool(form.shape)


def test_the_inline_format_needs_tools() -> None:
    assert resolve(["inline"], []) == ()
    assert resolve(["inline"], ["a", "b"])[0].opens == ("[a(", "[b(")
    with pytest.raises(ValueError, match=r"known: hermes, qwen3_coder, glm, .*, inline"):
        resolve(["xml"], [])


def test_byte_level_vocabulary() -> None:
    tokens = ["Ġhello", "Ċ", "Ã©", "<|im_end|>", None]
    vocabulary = vocabulary_of(tokens, {3: "<|im_end|>"}, byte_level=True)
    pieces = [vocabulary.bytes_of(index) for index in range(6)]
    assert pieces == [b" hello", b"\n", "é".encode(), b"<|im_end|>", b"", b""]


def test_metaspace_vocabulary() -> None:
    vocabulary = vocabulary_of(["▁hello", "<0x0A>", "é"], {}, byte_level=False)
    assert [vocabulary.bytes_of(i) for i in range(3)] == [b" hello", b"\n", "é".encode()]
