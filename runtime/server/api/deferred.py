"""Deferred tools: the model may call them once a message has told it of them.

The prompt's own list of tools leaves them out, so that it stays the same when one is found: what is
in the prefix cache then goes on being of use.
"""

import asyncio
import json
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import regex

from caesura.scheduler.messages import ToolSpec
from caesura.tools.errors import Permanent
from caesura.tools.search.results import words_of
from caesura.tools.tool import Tool

MAX_FOUND = 5
"""The most tools that one search finds."""
MAX_PATTERN_CHARACTERS = 200
REGEX_SECONDS = 0.5
"""A pattern that takes longer to match is refused."""
REGEX, BM25 = "tool_search_tool_regex", "tool_search_tool_bm25"
SEARCHES = frozenset({REGEX, BM25})
"""Anthropic's searches of deferred tools, which this server runs."""
_HEAD = "These tools can be called from now on:"
_ABOUT = {
    REGEX: ("a pattern, as Python's `re` reads it", "whose text matches a pattern"),
    BM25: ("a few words", "by words"),
}


def told(specs: Sequence[ToolSpec]) -> str:
    """Return the text that tells the model of tools that were found."""
    if not specs:
        return "No tools were found."
    return "\n".join([_HEAD, *(json.dumps(spec, ensure_ascii=False) for spec in specs)])


def names_in(text: str) -> list[str]:
    """Return the names of the tools in such a text; one that was cut off is left out."""
    head, *lines = text.split("\n")
    names = []
    for line in lines if head == _HEAD else ():
        try:
            names.append(str(json.loads(line)["function"]["name"]))
        except (ValueError, LookupError, TypeError):
            break
    return names


def search_tool(kind: str, specs: Sequence[ToolSpec]) -> Tool:
    """Return the search of that kind, of `SEARCHES`, over deferred tools."""

    async def search(query: str) -> str:
        find = _by_pattern if kind == REGEX else _by_words
        found = await asyncio.to_thread(find, query, [_text(spec) for spec in specs])
        return told([specs[number] for number in found[:MAX_FOUND]])

    query, by = _ABOUT[kind]
    return Tool(
        name=kind,
        description=f"Find more tools, {by}: in their names, descriptions and arguments.",
        parameters={
            "type": "object",
            "properties": {"query": {"type": "string", "description": query}},
            "required": ["query"],
            "additionalProperties": False,
        },
        call=search,
        safe_to_repeat=True,
        max_result_tokens=8_000,
        expected_seconds=0.01,
    )


def _text(spec: ToolSpec) -> str:
    """Return what of a tool is searched."""
    function = spec["function"]
    return "\n".join(
        [function["name"], function.get("description") or "", *_arguments(function["parameters"])]
    )


def _arguments(schema: Mapping[str, Any]) -> Iterator[str]:
    fields = schema.get("properties")
    for name, field in fields.items() if isinstance(fields, Mapping) else ():
        yield name
        if isinstance(field, Mapping) and isinstance(field.get("description"), str):
            yield field["description"]


def _by_pattern(pattern: str, texts: Sequence[str]) -> list[int]:
    """Return the numbers of the texts that match, in order; raise Permanent for a bad pattern."""
    if len(pattern) > MAX_PATTERN_CHARACTERS:
        raise Permanent(f"a pattern may have {MAX_PATTERN_CHARACTERS} characters")
    try:
        compiled = regex.compile(pattern)
        begun, found = time.monotonic(), []
        for number, text in enumerate(texts):
            left = REGEX_SECONDS - (time.monotonic() - begun)
            if compiled.search(text, timeout=max(left, 0.001), concurrent=True):
                found.append(number)
        return found
    except regex.error as error:
        raise Permanent(f"the pattern cannot be read: {error}") from None
    except TimeoutError:
        raise Permanent("the pattern takes too long: use a simpler one") from None


def _by_words(query: str, texts: Sequence[str]) -> list[int]:
    """Return the numbers of the texts with any of the words, the best first, by BM25."""
    words = [word.replace('"', " ") for word in words_of(query)]
    if not words:
        return []
    with closing(sqlite3.connect(":memory:")) as base:
        base.execute("CREATE VIRTUAL TABLE tools USING fts5 (text, tokenize='porter unicode61')")
        base.executemany("INSERT INTO tools (rowid, text) VALUES (?, ?)", enumerate(texts))
        asked = " OR ".join(f'"{word}"' for word in words)
        found = "SELECT rowid FROM tools WHERE tools MATCH ? ORDER BY bm25(tools), rowid"
        return [row[0] for row in base.execute(found, (asked,))]
