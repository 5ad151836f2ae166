"""Make the prompts of the example applications: questions, and documents cut into parts.

    python examples/applications/make_prompts.py [FOLDER] [--rows N] [--documents N] [--seed N]

The texts are put together from the lists below by a seeded generator. The lengths of the documents
are skewed, as those of books are: most have a few parts, and one has many.
"""

import argparse
import json
import random
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).parent

SUBJECTS = (
    *("a lighthouse", "a market hall", "a glass furnace", "a mountain hut", "a print shop"),
    *("a river ferry", "a seed library", "a night train", "a clock tower", "a salt works"),
)
ASPECTS = (
    *("is heated in winter", "is kept clean", "pays its workers", "is found by visitors"),
    *(
        "changed over the years",
        "is lit at night",
        "is repaired after a storm",
        "keeps its records",
    ),
)
FORMS = (
    "Explain in two sentences how {subject} {aspect}.",
    "How would you tell a child how {subject} {aspect}?",
    "Write a short letter that asks how {subject} {aspect}.",
    "List three reasons why it matters how {subject} {aspect}.",
)
PEOPLE = ("the keeper", "a visitor", "the mayor", "an old sailor", "the baker", "a surveyor")
DEEDS = (
    *("counted the lamps", "mended the north wall", "carried coal to the cellar"),
    *("wrote down the weather", "opened the gates early", "sold the last of the bread"),
    *("measured the depth of the water", "painted the shutters green"),
)
TIMES = ("at dawn", "before noon", "after the rain", "in the evening", "when the bell rang")

SENTENCES_PER_PART = 4
MAX_PARTS = 24
"""The parts of the longest document."""


def questions(count: int, draw: random.Random) -> list[dict[str, str]]:
    """Return rows with a question each."""
    return [
        {
            "question": draw.choice(FORMS).format(
                subject=draw.choice(SUBJECTS), aspect=draw.choice(ASPECTS)
            )
        }
        for _ in range(count)
    ]


def documents(count: int, draw: random.Random) -> list[dict[str, object]]:
    """Return rows with a title and a list of parts; about half have three parts or fewer."""
    lengths = [min(MAX_PARTS, 1 + int(draw.expovariate(1 / 3))) for _ in range(count - 1)]
    return [
        {
            "title": f"The days of {draw.choice(SUBJECTS)}",
            "parts": [_part(draw) for _ in range(length)],
        }
        for length in (MAX_PARTS, *lengths)
    ]


def _part(draw: random.Random) -> str:
    sentences = (
        f"{draw.choice(PEOPLE).capitalize()} {draw.choice(DEEDS)} {draw.choice(TIMES)}."
        for _ in range(SENTENCES_PER_PART)
    )
    return " ".join(sentences)


def _write(path: Path, rows: Iterable[object]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    print(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=HERE, help="default: beside this")
    parser.add_argument("--rows", type=int, default=64, help="questions; default: 64")
    parser.add_argument("--documents", type=int, default=24, help="default: 24")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    _write(given.folder / "questions.jsonl", questions(given.rows, random.Random(given.seed)))
    _write(given.folder / "documents.jsonl", documents(given.documents, random.Random(given.seed)))


if __name__ == "__main__":
    main()
