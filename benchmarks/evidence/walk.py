"""Measured figures in prose: what pages may not say outside of generated blocks.

Settings, defaults and formulas are let through: a figure in a code span, a sentence that names the
option or setting that it is of, and one that links to the reference.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.evidence.depends import ROOT

REFERENCE = ROOT / "docs" / "reference"

GENERATED = re.compile(
    r"<!-- evidence: (?!end )[^>]*-->.*?<!-- evidence: end -->"
    r"|<!-- begin (?P<name>follow-ups|dialects) -->.*?<!-- end (?P=name) -->"
    r"|^```.*?^```"
    r"|^\*\*It claims\*\* .*?$",
    re.DOTALL | re.MULTILINE,
)
"""Blocks that are written from data (two of them by tests of formats), code, and papers' claims."""

COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
CODE = re.compile(r"`[^`\n]+`")
TARGET = re.compile(r"\]\([^)\s]*\)")
SENTENCE_END = re.compile(r"(?<=[.!?:])(?<!\.\.)\s+(?=[\"'(*_`\[A-Z0-9])|\n")

NUMBER = r"(?<![\w.])\d[\d,]*(?:\.\d+)?"
UNIT = r"(?:tokens?|requests?|sessions?|steps?|responses?|runs?|calls?|[KMGT]i?B|[kM]?B)"
SECONDS = r"(?:s|seconds?|min|minutes?|h|hours?|ms|µs)"
FIGURES = {
    "a percentage": re.compile(NUMBER + r"\s?(?:%|per ?cent\b)"),
    "a ratio": re.compile(
        NUMBER + r"\s?(?:×|x\b(?!\s*[\d=(]))"
        r"|(?:" + NUMBER + r"|\b(?:two|three|four|five|six|ten|many)) times "
        r"(?:as|the|that|its|their|more|less|longer|shorter|faster|slower|lower|higher|stock|vLLM)\b"
        r"|\b(?:twice|half|double|thrice|a (?:third|quarter|fifth|tenth)) (?:as|the time)\b"
    ),
    "a rate": re.compile(
        NUMBER + r"\s?" + UNIT + r"\s?(?:/\s?(?:s|h|min)\b|(?:per|a|each) second\b)"
    ),
    "an interval": re.compile(r"\[[-−]?\d[^\]\n]* \.\. [^\]\n]*\]|±\s?\d"),
    "a short time": re.compile(NUMBER + r"\s?(?:ms|µs|us|ns|milliseconds?|microseconds?)\b"),
    "a statistic": re.compile(
        r"\b(?:median|p9\d|p5)\b[^.]*?\d|\b(?:mean|average)\b[^.]*?"
        + NUMBER
        + rf"\s?(?:%|{SECONDS})\b"
        r"|" + NUMBER + r" \w+ on average",
        re.IGNORECASE,
    ),
    "a decimal": re.compile(r"(?<![\w.])[-−]?\d+\.\d{2,}(?![\w.]*\.\d)"),
    "a time that was taken": re.compile(
        r"\b(?:took|lasted|measured|needed|instead of|against|latency|faster|slower)\b[^.]*?"
        + NUMBER
        + rf"\s?{SECONDS}\b"
        r"|\btakes? (?:about |some |up to )?" + NUMBER + rf"\s?{SECONDS}\b"
        r"|" + NUMBER + rf"\s?{SECONDS} (?:more|less|longer|shorter|faster|slower|later|sooner)\b"
        r"|" + NUMBER + rf"\s?{SECONDS}\b[^.]*?\b(?:against|instead of|measured)\b",
        re.IGNORECASE,
    ),
}
"""What is taken for a measured figure, by its name."""

VERSIONED = (
    r"vLLM|Python|Caesura|PyTorch|[Tt]orch|CUDA|ROCm|Linux|Node|npm|TOML|HTTP|TLS|OpenAPI|Prometheus"
    r"|Grafana|LangChain|LangGraph|openai-agents|pydantic-ai|smolagents|LiteLLM|Codex|Qwen|Llama|GLM"
    r"|[Vv]ersion|[Rr]elease"
)
VERSION = re.compile(
    rf"\b(?:{VERSIONED})(?:'s)?\s?v?\d+(?:\.\d+)*(?:(?:,| and| or| to)\s+v?\d+(?:\.\d+)+)*"
)
NAMED = re.compile(
    r"--[a-z][\w-]+(?:[ =]\S+)?|[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+"
    r"|[a-z][a-z0-9]*(?:_[a-z0-9]+)+|[\w.-]+\s?=\s?\S+"
)
"""A code span that names a setting: an option, a variable, a field, or `name = value`."""

SETTING_KINDS = ("a percentage", "a short time", "a decimal", "a rate", "a time that was taken")
"""What a setting's value may look like; ratios, intervals and statistics are measured."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured figure in the prose of a page: its line, what it looks like, and the sentence."""

    page: Path
    line: int
    kind: str
    sentence: str

    def __str__(self) -> str:
        name = self.page.relative_to(ROOT).as_posix()
        return f"{name}:{self.line}: {self.kind}: {self.sentence}"


ALLOWED: dict[str, str] = {
    "An interval after ± is one of 95 % over the seeds.": "what the sign means",
}
"""Sentences with figures that nobody measured, as they stand, with the reason."""


def pages() -> list[Path]:
    """Return README and all pages of docs but those of the reference."""
    docs = sorted((ROOT / "docs").rglob("*.md"))
    return [ROOT / "README.md", *(page for page in docs if REFERENCE not in page.parents)]


def figures(page: Path) -> Iterator[Figure]:
    """Yield the measured figures in a page's prose."""
    yield from figures_in(page.read_text(), page)


def figures_in(text: str, page: Path) -> Iterator[Figure]:
    """Yield the measured figures in the prose of a text, which stands for a page."""
    for cut in (GENERATED, COMMENT):
        text = cut.sub(lambda found: "\n" * found[0].count("\n"), text)
    for number, line in enumerate(text.splitlines(), start=1):
        for sentence in sentences(line):
            kind = None if sentence in ALLOWED else kind_of(sentence)
            if kind is not None:
                yield Figure(page, number, kind, sentence)


def sentences(line: str) -> list[str]:
    """Return the sentences of a line; each cell of a table is one at least."""
    parts = re.split(r"(?<!\\)\|", line) if line.lstrip().startswith("|") else [line]
    found = [piece.strip(" -*") for part in parts for piece in SENTENCE_END.split(part)]
    return [piece for piece in found if piece]


def kind_of(sentence: str) -> str | None:
    """Return what in a sentence looks like a measured figure, or None."""
    is_setting = "reference/" in "".join(TARGET.findall(sentence)) or any(
        NAMED.fullmatch(span.strip("`")) for span in CODE.findall(sentence)
    )
    bare = VERSION.sub("", TARGET.sub("]", CODE.sub("``", sentence)))
    for kind, pattern in FIGURES.items():
        if pattern.search(bare) and not (is_setting and kind in SETTING_KINDS):
            return kind
    return None
