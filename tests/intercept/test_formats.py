"""The table of formats, and the bytes of a vocabulary."""

import pytest

from caesura.intercept.formats import detect, resolve
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
        ("<tool_call> or [tool(arguments) -> result]", ("hermes", "inline")),
        ("{{ messages }}", ()),
    ],
)
def test_formats_are_read_off_the_template(template: str, formats: tuple[str, ...]) -> None:
    assert detect(template) == formats


def test_the_inline_format_needs_tools() -> None:
    assert resolve(["inline"], []) == ()
    assert resolve(["inline"], ["a", "b"])[0].opens == ("[a(", "[b(")
    with pytest.raises(ValueError, match="known: hermes, llama3_json, mistral, inline"):
        resolve(["xml"], [])


def test_byte_level_vocabulary() -> None:
    tokens = ["Ġhello", "Ċ", "Ã©", "<|im_end|>", None]
    vocabulary = vocabulary_of(tokens, {3: "<|im_end|>"}, byte_level=True)
    pieces = [vocabulary.bytes_of(index) for index in range(6)]
    assert pieces == [b" hello", b"\n", "é".encode(), b"<|im_end|>", b"", b""]


def test_metaspace_vocabulary() -> None:
    vocabulary = vocabulary_of(["▁hello", "<0x0A>", "é"], {}, byte_level=False)
    assert [vocabulary.bytes_of(i) for i in range(3)] == [b" hello", b"\n", "é".encode()]
