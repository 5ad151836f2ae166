"""Passages of text as the search tool shows them, long and short."""

from __future__ import annotations

import random

from tasks.words import made_up

from .facts import filled

_FILLER = (
    "It lies near {c}.", "Many people visit it in summer.", "Little else is known.",
    "Others come from {c}.", "{p} wrote about it in {y}.", "There is a museum in {c}.",
    "The first report is from {y}.", "It is older than {w}.", "See also {w}.",
    "A copy of it stands in {c}.", "In {y} it was closed for a year.", "The rest is unknown.",
    "Today {n} {t} are kept there.", "Its name comes from {w}.",
)  # fmt: skip
_SOURCES = (
    "wikipedia", "notes.txt", "guide.md", "corpus", "history.txt", "https://{w}.org", "{w}.txt",
    "{w}.md", "en.wikipedia.org", "docs/{w}.md", "{w}", "library",
)  # fmt: skip
_CLAUSES = (
    "lies near {c}", "was built in {y}", "holds {n} {t}", "is kept by {p}", "has no {w}",
    "keeps the {w} of every {v}", "is older than the {w}", "came from {c} in {y}",
    "needs {n} {t} a year", "can be seen from {c}", "is called {w} by {p}", "was never found",
    "makes a {w} out of {t}", "does not know any {w}", "has been closed since {y}",
)  # fmt: skip


def long(rng: random.Random, x: str) -> str:
    """Return a sentence of several clauses about ``x``, as long as those of real texts."""
    clauses = [filled(rng, text) for text in rng.sample(_CLAUSES, rng.choice((2, 3)))]
    lead = f"{x[0].upper()}{x[1:]}" + rng.choice(("", f", which {clauses.pop()},"))
    return f"{lead} {' and '.join(clauses)}."


def filler(rng: random.Random) -> str:
    """Return a sentence that answers nothing."""
    return filled(rng, rng.choice(_FILLER))


def block(rng: random.Random, place: int, title: str, sentences: list[str]) -> str:
    """Return one passage as the search tool shows it: a long one may be cut at its ends."""
    source = rng.choice(_SOURCES).format(w=made_up(rng))
    title = title[0].upper() + title[1:]
    if rng.random() < 0.15:
        title = f"{made_up(rng).capitalize()}{rng.choice((' > ', ': ', ' / '))}{title}"
    text = " ".join(sentence[0].upper() + sentence[1:] for sentence in sentences)
    before, after = rng.choice((("", ""),) * 6 + (("... ", ""), ("", " ..."), ("... ", " ...")))
    return f"[{place}] {title} ({source})\n{before}{text}{after}"
