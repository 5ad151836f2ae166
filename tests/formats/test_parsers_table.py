"""The table of vLLM's tool parsers in docs/reference/formats.md says of each how it is served."""

import re
from pathlib import Path

import pytest
import vllm
from vllm.tool_parsers import _TOOL_PARSERS_TO_REGISTER

from caesura.intercept.calls.detection import SIGNED
from caesura.intercept.calls.formats import BY_PARSER, by_parser
from caesura.scheduler.errors import UsageError
from caesura.scheduler.vllm.client.model_formats import named_formats
from tests.formats.vllm_turns import TURNS

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "formats.md"
PARSERS = set(_TOOL_PARSERS_TO_REGISTER)


def table() -> dict[str, str]:
    """How calls are read, by the parser's name."""
    section = DOCS.read_text().partition("Every tool parser of vLLM")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| `([^`]+)` \|[^|]*\| ([^|]*?) \|", section, re.MULTILINE))


def test_the_table_names_vllms_parsers() -> None:
    assert sorted(set(table()) - PARSERS) == [], f"vLLM {vllm.__version__} lacks these"
    assert sorted(PARSERS - set(table())) == [], f"new in vLLM {vllm.__version__}"


@pytest.mark.parametrize("parser", sorted(PARSERS))
def test_the_table_says_how_a_parser_is_served(parser: str) -> None:
    told = table()[parser]
    if told.startswith("not:"):
        with pytest.raises(UsageError, match=f"{parser!r} reads answers only in vLLM's server"):
            named_formats([parser])
        return
    (name,) = named_formats([parser])
    if not name.startswith(BY_PARSER):
        assert told == f"while decoding, row `{name}`"
        return
    assert parser in TURNS
    where = "every turn" if by_parser(parser).opens_anywhere else "a turn with its opener"
    assert told.startswith(f"at the end of {where}")


def test_detection_names_formats_that_are_served() -> None:
    assert named_formats(SIGNED) == SIGNED
