"""Call formats by the names of vLLM's tool parsers, plugins included."""

import importlib
from collections.abc import Iterable
from pathlib import Path

from vllm.tool_parsers import ToolParser, ToolParserManager
from vllm.utils.import_utils import import_from_path

from caesura.intercept.calls.formats import (
    BY_PARSER,
    GLM,
    HARMONY,
    HERMES,
    HUNYUAN_A13B,
    LLAMA3_JSON,
    NAMES,
    PYTHONIC,
    QWEN3_CODER,
    turn_format,
)
from caesura.scheduler.errors import UsageError

ROWS = {
    "ernie45": HERMES.name,
    "glm45": GLM.name,
    "glm47": GLM.name,
    "granite4": HERMES.name,
    "jamba": HUNYUAN_A13B.name,
    "ling3": GLM.name,
    "llama4_json": LLAMA3_JSON.name,
    "llama4_pythonic": PYTHONIC.name,
    "openai": HARMONY.name,
    "qwen3_json": HERMES.name,
    "qwen3_xml": QWEN3_CODER.name,
    "step3p5": QWEN3_CODER.name,
}
"""Rows of our table for vLLM's parsers of another name that read the same calls."""

OURS = "caesura_"
"""How the names of the tool parsers begin that Caesura registers with vLLM."""


def parsers() -> list[str]:
    """Return the names of vLLM's tool parsers, plugins included, without ours."""
    return [name for name in ToolParserManager.list_registered() if not name.startswith(OURS)]


def named_formats(names: Iterable[str]) -> tuple[str, ...]:
    """Return the formats that a user has named: by our names, or by vLLM's tool parsers.

    Raises `UsageError` for a name that is neither.
    """
    return tuple(_named(name) for name in names)


def with_parser(detected: Iterable[str], parser: str | None) -> tuple[str, ...]:
    """Return the detected formats, with the calls of a turn as vLLM's `parser` reads them.

    A parser that works in vLLM's server alone changes nothing. Raises `UsageError` for an unknown
    parser.
    """
    detected = tuple(detected)
    if parser is None or (parser in parsers() and not reads_text(parser)):
        return detected
    in_sentence = (name for name in detected if turn_format([name]) is None)
    return (_named(parser.removeprefix(OURS)), *in_sentence)


def load_plugin(path: str | None) -> None:
    """Import a module or a file that registers tool parsers with vLLM; None imports nothing.

    Raises `UsageError` if it cannot be imported, where vLLM's own import only logs the error.
    """
    if not path:
        return
    try:
        if path.endswith(".py"):
            import_from_path(Path(path).stem, path)
        else:
            importlib.import_module(path)
    except Exception as error:
        raise UsageError(f"--tool-parser-plugin {path} cannot be imported: {error}") from error


def reads_text(parser: str) -> bool:
    """Return whether vLLM's parser of this name can read the text of a turn by itself.

    Some only stand for a parser of whole answers in vLLM's server.
    """
    made = ToolParserManager.get_tool_parser(parser)
    return made.extract_tool_calls is not ToolParser.extract_tool_calls


def _named(name: str) -> str:
    if name in NAMES:
        return name
    if name in ROWS:
        return ROWS[name]
    parser = name.removeprefix(BY_PARSER)
    if parser not in parsers():
        raise UsageError(
            f"unknown call format {name!r}; choose from: {', '.join(NAMES)}; or a tool parser of"
            f" vLLM's: {', '.join(each for each in parsers() if each not in {*NAMES, *ROWS})}"
        )
    if not reads_text(parser):
        raise UsageError(
            f"vLLM's tool parser {parser!r} reads answers only in vLLM's server; give it to"
            f" `caesura serve` as `-- --tool-call-parser {parser}`, for tools of clients"
        )
    return f"{BY_PARSER}{parser}"
