"""Kept results: what they depend on, how they are made, and how pages show them."""

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table as Drawn

from benchmarks.evidence import __main__ as program
from benchmarks.evidence import depends, pages, results
from benchmarks.evidence.pages import Kept, origin, since, written
from benchmarks.evidence.questions import QUESTIONS, Question, by_name
from benchmarks.evidence.results import Result, read
from benchmarks.evidence.run import END_SECONDS, Maker
from benchmarks.evidence.tables import Table, tell, told

SMALL = Table.of(("policy", "latency"), [("ours", "1.5 ±0.1"), ("`stock`", "–")], key="small")
PAGE = depends.ROOT / "docs" / "study" / "evidence.md"
NAME = QUESTIONS[0].name


def result(**given: Any) -> Result:
    values: dict[str, Any] = {
        "name": NAME,
        "command": "python -m benchmarks.policies",
        "seeds": (1, 2, 3),
        "commit": "1234abcd5678",
        "began": "2026-11-05T10:00:00+00:00",
        "seconds": 61.5,
        "others": 0.25,
        "machine": {"processor": "A CPU", "cores": 2, "memory_gib": 8.0, "bfloat16": False},
        "versions": {"vllm": "0.32.0"},
        "files": {"scheduler": "aa", "simulator": "bb"},
        "tables": (SMALL, replace(SMALL, key="other", title="Another")),
    }
    return Result(**{**values, **given})


# -- Tables --------------------------------------------------------------------------------------


def test_a_table_is_the_same_as_data_and_numbers_stand_to_the_right(tmp_path: Path) -> None:
    tell(tmp_path / "tables.json", [SMALL])
    assert told(tmp_path / "tables.json") == [SMALL]
    assert SMALL.markdown().splitlines()[:3] == [
        "| policy | latency |",
        "| --- | ---: |",
        "| ours | 1.5 ±0.1 |",
    ]
    tell(None, [SMALL])


def test_what_a_terminal_shows_is_taken_over_without_its_markup() -> None:
    drawn = Drawn(title="median \\[middle half]")
    drawn.add_column("name")
    drawn.add_column("time \\[s]")
    drawn.add_row("[red]one[/red]", "1.0")
    found = Table.drawn(drawn)
    assert found == Table.of(("name", "time [s]"), [("one", "1.0")], "median [middle half]")


def test_a_row_of_another_width_is_refused() -> None:
    with pytest.raises(ValueError, match="3 cells under 2 columns"):
        Table.of(("a", "b"), [("1", "2", "3")])


# -- What a figure depends on --------------------------------------------------------------------


def test_comments_and_docstrings_change_nothing_and_code_does() -> None:
    plain = 'LIMIT = 3\n\n\ndef f(x):\n    return f"#{x}"\n'
    told_of = '"""About."""\nLIMIT = 3  # the most\n"""More."""\ndef f(x):\n    """Return."""\n'
    assert depends.meaning(plain) == depends.meaning(told_of + '    return f"#{x}"\n')
    assert depends.meaning(plain) != depends.meaning(plain.replace("3", "4"))
    typed = (
        'class É:\n    x: Annotated[\n        int, About("é")\n    ] = 3\n    y: list["É"] = z()\n'
    )
    told_else = 'class É:\n    x: Annotated[int, About("ü", read_by="")] = 3\n    y: Any = z()\n'
    assert depends.meaning(typed) == depends.meaning(told_else)
    assert depends.meaning(typed) != depends.meaning(told_else.replace("z()", "z(1)"))
    assert depends.meaning(plain) != depends.meaning(plain.replace("#{x}", "# {x}"))


def test_imports_are_followed_into_rooms_that_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        "benchmarks/one.py": "def f():\n    from caesura.scheduler.rank import key\n",
        "scheduler/rank.py": "from typing import TYPE_CHECKING\nimport caesura.runtime.page\n"
        "if TYPE_CHECKING:\n    from caesura.scheduler import typed\n",
        "scheduler/typed.py": "",
        "scheduler/other.py": "",
        "runtime/page.py": "",
        "data/runs.jsonl": "{}\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "src" / "caesura").mkdir(parents=True)
    for room in ("scheduler", "runtime"):
        (tmp_path / "src" / "caesura" / room).symlink_to(tmp_path / room)
    monkeypatch.setattr(depends, "ROOT", tmp_path)
    monkeypatch.setattr(depends, "LINKED", tmp_path / "src" / "caesura")

    def found(*rooms: str) -> list[str]:
        paths = depends.files_of(["benchmarks.one"], ("benchmarks", *rooms), ["data/*.jsonl"])
        return [path.relative_to(tmp_path).as_posix() for path in paths]

    assert found("scheduler") == ["benchmarks/one.py", "data/runs.jsonl", "scheduler/rank.py"]
    assert "runtime/page.py" in found("scheduler", "runtime")
    with pytest.raises(FileNotFoundError, match=r"benchmarks\.two is no module"):
        depends.files_of(["benchmarks.two"], ("benchmarks",))
    with pytest.raises(FileNotFoundError, match="no file matches data/none"):
        depends.files_of(["benchmarks.one"], ("benchmarks",), ["data/none*"])
    # Each room has a digest of its own, so that one tells which code has changed.
    before = depends.digests([tmp_path / name for name in files if name.endswith(".py")])
    depends.contents.cache_clear()
    (tmp_path / "scheduler" / "rank.py").write_text("x = 1\n")
    after = depends.digests([tmp_path / name for name in files if name.endswith(".py")])
    assert depends.changed(before, after) == ["scheduler"]
    assert depends.changed(before, before) == []


def test_a_simulated_figure_depends_on_the_scheduler_and_not_on_the_server() -> None:
    names = {path.relative_to(depends.ROOT).as_posix() for path in by_name()["policies"].files()}
    assert {
        "scheduler/policy/ranking.py",
        "intercept/kv/handling.py",
        "simulator/engine/core.py",
        "benchmarks/policies.py",
    } <= names
    assert not any(name.startswith(("runtime/", "benchmarks/evidence/")) for name in names)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.name)
def test_a_command_names_a_module_that_can_tell_its_tables(question: Question) -> None:
    files = question.files()
    assert files and len(by_name()) == len(QUESTIONS)
    sources = [path.read_text() for path in files if path.suffix == ".py"]
    assert any("add_option(" in source for source in sources)
    assert question.kind in program.KINDS and question.asks.endswith("?")
    if "±" in question.about:
        assert len(question.seeds) >= 3


# -- Making --------------------------------------------------------------------------------------

SCRIPT = """
import json, pathlib, sys, time
tables = pathlib.Path(sys.argv[sys.argv.index("--tables") + 1])
state = tables.parent / "runs"
done = int(state.read_text()) if state.exists() else 0
print("begun", flush=True)
while done < int(sys.argv[1]):
    done += 1
    state.write_text(str(done))
    if sys.argv[2] == "slow" and done == 1:
        try:
            (tables.parent / "waits").touch()
            time.sleep(600)
        except KeyboardInterrupt:
            (tables.parent / "heard").touch()
            raise
row = ["runs", str(done)]
tables.write_text(json.dumps([{"columns": ["what", "n"], "rows": [row], "title": "", "key": ""}]))
"""


def question(tmp_path: Path, words: str, **given: Any) -> Question:
    (tmp_path / "script.py").write_text(SCRIPT)
    values: dict[str, Any] = {
        "name": NAME,
        "asks": "How many?",
        "command": f"python {tmp_path / 'script.py'} {words}",
        "minutes": 0.1,
        "kind": "simulated",
        "about": "All of them.",
    }
    return _Made(**{**values, **given})


class _Made(Question):
    """A question that depends on nothing but what a test says."""

    def digests(self) -> dict[str, str]:
        return {"scheduler": "one"}


def test_a_result_says_where_and_of_what_it_was_made(tmp_path: Path) -> None:
    maker = Maker(Console(quiet=True), tmp_path / "kept", tmp_path / "cache")
    asked = question(tmp_path, "3 quick", seeds=(7,))
    assert maker.make([asked], 600) == []
    found = read(NAME, tmp_path / "kept")
    assert found is not None
    assert [table.rows for table in found.tables] == [(("runs", "3"),)]
    assert (found.seeds, found.files, found.command) == ((7,), {"scheduler": "one"}, asked.command)
    assert found.machine["cores"] >= 1 and 0 <= found.others <= 1 and found.seconds > 0
    assert found.versions["caesura"]
    assert not (tmp_path / "cache" / NAME / "spent.json").exists()


def test_a_command_that_fails_keeps_no_result(tmp_path: Path) -> None:
    maker = Maker(Console(quiet=True), tmp_path / "kept", tmp_path / "cache")
    assert maker.make([question(tmp_path, "none")], 600) == [NAME]
    assert read(NAME, tmp_path / "kept") is None


@pytest.fixture
def waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Let the time be used up once the script waits, and then wait for it to end."""
    waits = tmp_path / "cache" / NAME / "waits"
    real = subprocess.Popen.wait

    def wait(process: subprocess.Popen[bytes], seconds: float | None = None) -> int:
        if seconds in (None, END_SECONDS):
            return real(process)
        while not waits.exists() and process.poll() is None:
            time.sleep(0.01)
        raise subprocess.TimeoutExpired("script", seconds or 0.0)

    monkeypatch.setattr(subprocess.Popen, "wait", wait)
    return monkeypatch


def test_what_was_interrupted_goes_on_and_its_time_adds_up(
    tmp_path: Path, waiting: pytest.MonkeyPatch
) -> None:
    maker = Maker(Console(quiet=True), tmp_path / "kept", tmp_path / "cache")
    assert maker.make([question(tmp_path, "3 slow")], 600) == [NAME]
    waiting.undo()
    first = json.loads((tmp_path / "cache" / NAME / "spent.json").read_text())
    assert first["seconds"] > 0
    assert maker.make([question(tmp_path, "3 slow")], 600) == []
    found = read(NAME, tmp_path / "kept")
    assert found is not None and found.seconds >= round(first["seconds"], 1)
    assert found.began == first["began"]


def test_a_command_hears_interrupts_in_the_background_too(
    tmp_path: Path, waiting: pytest.MonkeyPatch
) -> None:
    """A shell has its background ignore them, and Python then does so too."""
    maker = Maker(Console(quiet=True), tmp_path / "kept", tmp_path / "cache")
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert maker.make([question(tmp_path, "3 slow")], 600) == [NAME]
    finally:
        signal.signal(signal.SIGINT, before)
    assert (tmp_path / "cache" / NAME / "heard").exists()


def test_a_timed_command_that_keeps_nothing_is_not_begun_too_late(tmp_path: Path) -> None:
    maker = Maker(Console(quiet=True), tmp_path / "kept", tmp_path / "cache")
    timed = question(tmp_path, "3 quick", kind="timed", minutes=10)
    assert maker.make([timed], 60) == [NAME]
    assert not (tmp_path / "cache" / NAME).exists()


def test_what_other_code_took_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker = Maker(Console(quiet=True), tmp_path / "kept", tmp_path / "cache")
    folder = tmp_path / "cache" / NAME
    folder.mkdir(parents=True)
    spent = {"files": {"scheduler": "older"}, "began": "2020-01-01T00:00:00+00:00"}
    (folder / "spent.json").write_text(json.dumps({**spent, "seconds": 1e6, "others": 0.0}))
    assert maker.make([question(tmp_path, "1 quick")], 600) == []
    found = read(NAME, tmp_path / "kept")
    assert found is not None and found.seconds < 1e6 and found.made.year > 2020


def test_the_program_is_interrupted_by_a_signal_and_says_what_is_left(tmp_path: Path) -> None:
    """`--minutes` sends the command what Ctrl-C does, and the pages are written all the same."""
    code = subprocess.run(
        [sys.executable, "-m", "benchmarks.evidence", "--only", "nothing"],
        cwd=depends.ROOT,
        env={"PYTHONPATH": f"{depends.ROOT / 'src'}:{depends.ROOT}", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert code.returncode == 2
    assert "no question is named nothing; there are policies, links" in code.stderr


# -- Pages ---------------------------------------------------------------------------------------


def block(name: str) -> str:
    return f"before\n<!-- evidence: {name} -->\nold\n<!-- evidence: end -->\nafter\n"


def test_a_block_has_the_tables_and_one_line_on_their_origin() -> None:
    text = written(PAGE, block(NAME), Kept({NAME: result()}))
    assert text.startswith(f"before\n<!-- evidence: {NAME} -->\n\n{QUESTIONS[0].about}\n\n| policy")
    assert "\n**Another**\n" in text and "old" not in text
    line = text.splitlines()[-4]
    assert line == (
        "<small>`python -m benchmarks.policies`; seeds 1, 2, 3; simulated, 5 November 2026 at"
        " 1234abcd; 2 cores of A CPU; vLLM 0.32.0.</small>"
    )
    assert written(PAGE, text, Kept({NAME: result()})) == text


def test_a_block_can_show_one_table() -> None:
    text = written(PAGE, block(f"{NAME}/small"), Kept({NAME: result()}))
    assert "Another" not in text and "| ours | 1.5 ±0.1 |" in text
    with pytest.raises(LookupError, match=f"there are {NAME}/small, {NAME}/other"):
        written(PAGE, block(f"{NAME}/none"), Kept({NAME: result()}))


def test_a_picture_stands_in_the_block_of_the_result_that_it_was_drawn_from(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    page, picture = tmp_path / "docs" / "study" / "page.md", tmp_path / "docs" / "images"
    kept = Kept({NAME: result()})
    assert "](" not in written(page, block(NAME), kept)
    picture.mkdir(parents=True)
    (picture / "policies-rates.png").touch()
    asks = QUESTIONS[0].asks
    assert f"\n\n![{asks}](../images/policies-rates.png)\n\n" in written(page, block(NAME), kept)
    assert "](" not in written(page, block(NAME), Kept({}))


def test_a_block_without_a_result_says_how_it_is_made() -> None:
    text = written(PAGE, block(NAME), Kept({}))
    assert f"*Not measured yet: `{QUESTIONS[0].typed}`.*" in text


def test_a_wrong_mark_is_refused() -> None:
    with pytest.raises(LookupError, match="no question is named latency"):
        written(PAGE, block("latency"), Kept({}))
    with pytest.raises(LookupError, match="without '<!-- evidence: end -->'"):
        written(PAGE, f"<!-- evidence: {NAME} -->\n", Kept({}))


def test_what_is_stale_is_said_below_its_table_and_in_the_index() -> None:
    kept = Kept({NAME: result()}, {NAME: ["benchmarks", "scheduler"]})
    words = "the benchmark and `scheduler/` have changed since"
    assert f"**{words}**" in written(PAGE, block(NAME), kept)
    assert words in written(PAGE, block("index"), kept)
    assert since(["simulator"]) == "`simulator/` has changed since"


def test_a_timed_result_says_what_machine_and_what_else_ran_there() -> None:
    timed = replace(QUESTIONS[0], kind="timed")
    line = origin(timed, result(seeds=(3,), commit="1234abcd5678+"), ())
    assert "seed 3; timed, 5 November 2026 at 1234abcd+;" in line
    assert "2 cores of A CPU (float32), of which other programs used 25%" in line


def test_the_index_has_a_row_for_each_question() -> None:
    text = written(PAGE, block("index"), Kept({NAME: result()}))
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert len(rows) == len(QUESTIONS)
    assert "5 November 2026 at 1234abcd | unchanged |" in rows[0]
    assert all("| not yet |" in row for row in rows[1:])


def test_a_garbled_result_is_named(tmp_path: Path) -> None:
    result().keep(tmp_path)
    assert read(NAME, tmp_path) == result()
    assert read("nothing", tmp_path) is None
    (tmp_path / f"{NAME}.json").write_text("{}")
    with pytest.raises(ValueError, match=f"{NAME}.json is no kept result"):
        read(NAME, tmp_path)


def test_the_check_fails_for_what_is_missing_or_stale(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = [QUESTIONS[0]]
    assert program.check(chosen, Kept({NAME: result()}), {}) == 0
    assert program.check(chosen, Kept({NAME: result()}), {NAME: ["scheduler"]}) == 1
    assert "measured at 1234abcd; `scheduler/` has changed since" in capsys.readouterr().out
    assert program.check(chosen, Kept({}), {}) == 1


def test_a_commit_needs_no_git(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert results.commit() == ""
