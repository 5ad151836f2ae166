"""What stands in code spans and fenced blocks, however the text is cut."""

import itertools

import pytest

from caesura.intercept.calls.formats import resolve
from caesura.intercept.calls.mentions import Code, plain_openers
from caesura.intercept.calls.vocabulary import Vocabulary

TEXTS = [
    ("a `", True),
    ("a `b` ", False),
    ("``a`b ", True),
    ("``a``", False),
    ("a lone ` of a line\n", False),
    ("```\n", True),
    ("   ```py\n", True),
    ("    ```\n", False),
    ("in a line ```\n", False),
    ("```\nx\n```\n", False),
    ("```\nx\n ```  \r\n", False),
    ("```\nx\n``` y\n", True),
    ("```\nx\n    ```\n", True),
    ("````\n```\n", True),
    ("````\n```\n`````\n", False),
    ("~~~\n```\n", True),
    ("~~~\n~~~\n", False),
    ("~~~ a` b\n", True),
    ("~ a ~~~ b\n", False),
    ("```a``` ", False),
    ("```a`` ", True),
    ("```a`\n", False),
    ("```\na fence without an end\n\n`", True),
]


@pytest.mark.parametrize(("text", "inside"), TEXTS)
def test_text_is_in_code_or_not_at_every_cut(text: str, inside: bool) -> None:
    data = text.encode()
    edges = range(1, len(data))
    for cut in itertools.chain([()], itertools.combinations(edges, 1), [tuple(edges)]):
        code = Code()
        for start, end in itertools.pairwise([0, *cut, len(data)]):
            code.passed(data[start:end])
        assert code.holds(b"<tool_call>") is inside


@pytest.mark.parametrize(
    ("text", "inside"), [("```\nx\n```", False), ("```py", True), ("`", False)]
)
def test_an_opener_that_begins_with_a_line_break_ends_the_line_before(
    text: str, inside: bool
) -> None:
    code = Code()
    code.passed(text.encode())
    assert code.holds(b"\nAction:") is inside


def test_only_openers_without_a_token_of_their_own_are_plain() -> None:
    own = Vocabulary([b"<tool_call>"], {0: b"<tool_call>"})
    hermes, harmony = resolve(["hermes"], ()), resolve(["harmony"], ())
    assert plain_openers(hermes, own) == frozenset()
    assert plain_openers(hermes, Vocabulary([])) == {b"<tool_call>"}
    assert plain_openers(harmony, Vocabulary([])) == frozenset()
