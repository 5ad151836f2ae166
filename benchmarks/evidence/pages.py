"""The blocks of pages that show kept results, and the index of all of them.

A block stands between `<!-- evidence: NAME -->` and `<!-- evidence: end -->`. `NAME/KEY` shows one
table of a result, and `index` lists all questions.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.evidence.depends import ROOT, changed
from benchmarks.evidence.questions import QUESTIONS, Question, by_name
from benchmarks.evidence.results import FOLDER, SHORT, Result, read_all
from benchmarks.evidence.tables import Table

BLOCK = re.compile(r"<!-- evidence: (?!end )(\S+) -->\n.*?<!-- evidence: end -->", re.DOTALL)
BEGIN = re.compile(r"<!-- evidence: (?!end )")
INDEX = "index"
CHART = "--chart"
STUDY = ROOT / "docs" / "study"
STALE = "stale.json"
NAMES = {"benchmarks": "the benchmark", "tests": "what it takes from the tests"}


@dataclass(frozen=True, slots=True)
class Kept:
    """All that pages are generated from: the results, and which rooms have changed since.

    `stale` is kept too, as it was when the pages were written, so that a page depends on data alone
    and an edit of the scheduler changes none.
    """

    results: Mapping[str, Result]
    stale: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path = FOLDER) -> "Kept":
        """Read what is kept."""
        path = folder / STALE
        stale = json.loads(path.read_text()) if path.exists() else {}
        return cls(read_all(by_name(), folder), stale)


def stale_now(results: Mapping[str, Result]) -> dict[str, list[str]]:
    """Return the rooms that have changed since each result was made, of those that have some."""
    questions = by_name()
    found = {
        name: changed(result.files, questions[name].digests()) for name, result in results.items()
    }
    return {name: rooms for name, rooms in found.items() if rooms}


def keep_stale(stale: Mapping[str, Sequence[str]], folder: Path = FOLDER) -> None:
    """Write which results are stale, for the pages."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / STALE).write_text(json.dumps(stale, indent=1) + "\n")


def pages() -> list[Path]:
    """Return README and all pages of docs."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def written(page: Path, text: str, kept: Kept) -> str:
    """Return the text of a page with its blocks as the data give them.

    Raises `LookupError` for a block of an unknown question or table, and one without an end.
    """
    found = BLOCK.sub(lambda block: _block(page, block[1], kept), text)
    if len(BEGIN.findall(text)) != len(BLOCK.findall(text)):
        raise LookupError(
            f"{page} has a line '<!-- evidence: NAME -->' without '<!-- evidence: end -->'"
        )
    return found


def _block(page: Path, name: str, kept: Kept) -> str:
    body = _index(page, kept) if name == INDEX else _body(page, name, kept)
    return f"<!-- evidence: {name} -->\n\n{body}\n\n<!-- evidence: end -->"


def _body(page: Path, name: str, kept: Kept) -> str:
    of, _, key = name.partition("/")
    (question,) = by_name([of]).values()
    result = kept.results.get(of)
    if result is None:
        return f"*Not measured yet: `{question.typed}`.*"
    tables = [table for table in result.tables if key in ("", table.key)]
    if not tables:
        known = ", ".join(f"{of}/{table.key}" for table in result.tables if table.key)
        raise LookupError(f"{of} has no table {key!r}; there are {known or 'none with a key'}")
    parts = [question.about, *(table.markdown() for table in tables), *_chart(page, question)]
    return "\n\n".join([*parts, origin(question, result, kept.stale.get(of, ()))])


def _chart(page: Path, question: Question) -> list[str]:
    """Return the picture that the command draws beside its tables, if it does."""
    words = question.command.split()
    if CHART not in words:
        return []
    path = ROOT / words[words.index(CHART) + 1]
    return [f"![{question.asks}]({os.path.relpath(path, page.parent)})"] if path.exists() else []


def origin(question: Question, result: Result, stale: Sequence[str]) -> str:
    """Return the line below a table: its command, seeds, commit, machine and age."""
    parts = [f"`{result.command}`"]
    if result.seeds:
        plural = "s" if len(result.seeds) > 1 else ""
        parts.append(f"seed{plural} {', '.join(map(str, result.seeds))}")
    parts.append(f"{question.kind}, {made_at(result)}")
    machine = result.machine
    parts.append(f"{machine['cores']} cores of {machine['processor']}")
    if question.kind == "timed":
        kind = "bfloat16" if machine["bfloat16"] else "float32"
        parts[-1] += f" ({kind}), of which other programs used {result.others:.0%}"
    if "gpu" in machine:
        parts[-1] = str(machine["gpu"])
    parts.append(f"vLLM {result.versions.get('vllm', 'none')}")
    if stale:
        parts.append(f"**{since(stale)}**")
    return f"<small>{'; '.join(parts)}.</small>"


def made_at(result: Result) -> str:
    """Return the day and the commit of a result."""
    made = result.made
    mark = "+" if result.commit.endswith("+") else ""
    commit = f"{result.commit[:SHORT]}{mark}" or "an unknown commit"
    return f"{made.day} {made:%B %Y} at {commit}"


def since(rooms: Sequence[str]) -> str:
    """Say which code has changed since a result was made."""
    named = [NAMES.get(room, f"`{room}/`") for room in rooms]
    last = f" and {named[-1]}" if len(named) > 1 else ""
    whole = ", ".join(named[:-1]) + last if last else named[0]
    return f"{whole} {'have' if last else 'has'} changed since"


def _index(page: Path, kept: Kept) -> str:
    """Return the table of all questions, with a link to the page that has each."""
    rows = []
    for question in QUESTIONS:
        result = kept.results.get(question.name)
        asks, shown = question.asks, STUDY / question.page
        if shown != page:
            asks = f"[{asks}]({os.path.relpath(shown, page.parent)})"
        stale = kept.stale.get(question.name, ())
        made = "not yet" if result is None else made_at(result)
        code = "" if result is None else since(stale) if stale else "unchanged"
        rows.append((f"`{question.name}`", asks, question.kind, made, code))
    return Table.of(("name", "question", "kind", "made", "code since"), rows).markdown()


def shows(question: Question) -> bool:
    """Return whether the page of a question has a block of it."""
    page = STUDY / question.page
    names = BLOCK.findall(page.read_text()) if page.exists() else []
    return any(name.partition("/")[0] == question.name for name in names)


def write_pages(kept: Kept) -> list[Path]:
    """Write the blocks of all pages; return the pages that changed."""
    changed_pages = []
    for page in pages():
        text = page.read_text()
        new = written(page, text, kept)
        if new != text:
            page.write_text(new)
            changed_pages.append(page)
    return changed_pages
