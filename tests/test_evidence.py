"""The figures of README and docs: blocks are what the kept results give, and prose has none."""

from pathlib import Path

import pytest

from benchmarks.evidence import walk
from benchmarks.evidence.depends import ROOT
from benchmarks.evidence.pages import BLOCK, Kept, pages, shows, written
from benchmarks.evidence.questions import by_name
from benchmarks.evidence.results import FOLDER
from benchmarks.evidence.walk import Figure, figures, figures_in

KEPT = Kept.read()


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_blocks_are_what_the_results_give(page: Path) -> None:
    text = page.read_text()
    assert written(page, text, KEPT) == text, "python -m benchmarks.evidence --write writes them"


def test_every_result_answers_a_question_and_is_shown_on_its_page() -> None:
    names = {path.stem for path in FOLDER.glob("*.json")} - {"stale"}
    assert names <= set(by_name())
    assert set(KEPT.stale) <= names
    assert [name for name in names if not shows(by_name()[name])] == []


def test_no_title_has_lost_what_stood_in_brackets() -> None:
    titles = [table.title for kept in KEPT.results.values() for table in kept.tables]
    assert [title for title in titles if title != " ".join(title.split())] == []


@pytest.mark.parametrize("page", walk.pages(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_prose_has_no_measured_figure(page: Path) -> None:
    assert [str(figure) for figure in figures(page)] == []


def test_what_is_allowed_stands_on_a_page_with_a_reason() -> None:
    told = {
        sentence
        for page in walk.pages()
        for line in page.read_text().splitlines()
        for sentence in walk.sentences(line)
    }
    assert [sentence for sentence in walk.ALLOWED if sentence not in told] == []
    assert all(reason for reason in walk.ALLOWED.values())


def found(text: str) -> list[Figure]:
    return list(figures_in(text, ROOT / "README.md"))


@pytest.mark.parametrize(
    "text",
    [
        "Mean latency was **2.7 s against 25.6 s** for stock vLLM.",
        "It recomputes 2 % of the tokens.",
        "The mean fell to 0.57 of it.",
        "It is 4.9 times as fast as stock vLLM.",
        "Throughput is 0.984 [0.947 .. 1.018].",
        "It lies in [1 .. 2] of that.",
        "It is five times as slow.",
        "A start takes about 40 s.",
        "That is 3 s longer.",
        "The mean of all runs is 4 s.",
        "Agents made 12 calls on average.",
        "KV is copied at 403,000 tokens/s.",
        "A link of 6.6 GB/s carries it.",
        "`schedule()` takes 111 µs.",
        "The median is 5.",
        "Its p99 of 12 s is shorter.",
        "It took 16 s in one run.",
        "| `fcfs` | 3.94 s | 0.22 |",
        "It is 12 ±3.",
        "The default is twice as fast.",
        "With `fcfs` the mean latency falls by 8 %.",
        "Mean latency with `--chunk vllm` is 1.2 times as long.",
    ],
)
def test_a_measured_figure_is_found(text: str) -> None:
    assert len(found(text)) >= 1


@pytest.mark.parametrize(
    "text",
    [
        "Five deaths within ten minutes end the server with exit code 3.",
        "Blocks are kept for `retention` seconds (120).",
        "When fewer than 40 % of the blocks are free (`write_behind_free_share`), it copies.",
        "`--slow 0.25` limits it to a quarter.",
        "Caesura runs on vLLM 0.32.0 and Python 3.11 to 3.14.",
        "The body must have at most 1,000 messages of 64 KiB.",
        "It begins again after 1, 2 and 4 s.",
        "See [the settings](../reference/settings.md): they are 25 % by default.",
        "```\nit took 16 s, 40 %\n```",
        "<!-- evidence: policies -->\nIt took 16 s.\n<!-- evidence: end -->",
        "**It claims** that latency falls by 40 %. It is 2 times as fast.",
        "The share is `1 - 0.25 * 40 %` of it.",
        "A call may be tried up to 3 times.",
        "Memory is looked at 20 times a second.",
        "The forecast is the mean of the last 128 answers.",
        "A drawing that takes longer than 20 seconds is stopped.",
        "It takes its runs over when the lease of 30 seconds has run out.",
        "A picture is 640 x 400 by default, and its times as others say.",
        "It follows openai-agents 0.24, LangChain 1.4 and Linux 5.12.",
    ],
)
def test_settings_code_and_blocks_are_let_through(text: str) -> None:
    assert found(text) == []


def test_a_figure_is_told_with_its_line() -> None:
    (figure,) = found("Text.\n\n<!-- a\nnote -->\nIt took 16 s.\n")
    assert str(figure) == "README.md:5: a time that was taken: It took 16 s."


def test_a_block_of_an_unknown_name_would_be_found() -> None:
    assert BLOCK.search("<!-- evidence: nothing -->\n\n<!-- evidence: end -->") is not None
