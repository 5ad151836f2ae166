"""`caesura simulate` and `caesura replay`: what their options mean, and what is a mistake."""

import io
import json
import os
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from caesura.runtime.cli.app import app
from caesura.runtime.cli.plan import studies as command
from caesura.runtime.cli.plan.studies import (
    Bar,
    describe,
    make_study,
    parse_policies,
    parse_seeds,
    watching,
)
from caesura.runtime.recording.entries import row_of
from caesura.runtime.recording.storage import Store
from caesura.runtime.whatif.stretch import GOES_ON
from caesura.simulator.latency.machines import PLANS
from caesura.simulator.policy import POLICIES
from caesura.simulator.study.plan import StudyError
from caesura.simulator.study.work import Work
from caesura.simulator.workload.sources import SOURCES
from caesura.trajectories import Branch, Segment, Trajectory, write_jsonl
from tests.kit.waiting import wait_until
from tests.simulator import studies

QUICK = ("--rate", "1,2", "--seconds", "60", "--seeds", "2", "--jobs", "1")


def invoke(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No run is simulated; returns where reports may go."""
    use(monkeypatch, studies.make_up)
    return tmp_path / "out"


def use(monkeypatch: pytest.MonkeyPatch, work: Work) -> None:
    monkeypatch.setattr(command, "make_study", partial(make_study, work=work))


# -- what the options mean -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "names"),
    [
        (["stock,caesura"], ["stock", "caesura"]),
        (["stock", "caesura"], ["stock", "caesura"]),
        (
            ["stock,caesura:ranking=ssjf,chunk_tokens=512,infercept"],
            ["stock", "caesura:ranking=ssjf,chunk_tokens=512", "infercept"],
        ),
        (["lamps:chunk_tokens=512,backfill=no"], ["lamps:chunk_tokens=512,backfill=no"]),
        (["caesura:handling=swap,lamps:host=no"], ["caesura:handling=swap", "lamps:host=no"]),
        (
            ["caesura:ranking=caesura:beta=50,host=no"],
            ["caesura:ranking=caesura:beta=50,host=no"],
        ),
        (["stock, caesura,"], ["stock", "caesura"]),
    ],
)
def test_a_comma_goes_on_with_a_policy_only_before_a_setting(
    texts: list[str], names: list[str]
) -> None:
    assert [policy.name for policy in parse_policies(texts)] == names


def test_a_ranking_of_ones_own_is_found_in_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (Path(__file__).parents[3] / "examples" / "04_new_policy.py").read_text()
    (tmp_path / "my_module.py").write_text(text)
    told = re.search(r"--ranking my_module(\S+)`", text)
    assert told is not None
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert len(list(parse_policies(["lamps", "caesura:slo=ttft=0.5"]))) == 2
    assert str(tmp_path) not in sys.path
    (policy,) = parse_policies([f"caesura:ranking=my_module{told[1]}"])
    assert policy.settings["ranking"] == f"my_module{told[1]}"
    assert sys.path[-1] == str(tmp_path)


def test_settings_reach_their_policy() -> None:
    stock, ours = parse_policies(["stock:chunk_tokens=64,caesura:ranking=ssjf,host=no"])
    assert (stock.chunk_tokens, stock.engine) == (64, "stock")
    assert (ours.settings["ranking"], ours.host) == ("ssjf", False)


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("3", (0, 1, 2)), ("31-33", (31, 32, 33)), ("4,1,9", (4, 1, 9)), ("7,", (7,))],
)
def test_seeds(text: str, seeds: tuple[int, ...]) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["x", "1-", "-3", "1,x"])
def test_seeds_that_are_none(text: str) -> None:
    with pytest.raises(StudyError, match="--seeds must be like 5, 31-35 or 1,4,9, got"):
        parse_seeds(text)


def test_every_policy_can_be_described_and_read() -> None:
    for name, policy in POLICIES.items():
        assert "chunks " in describe(policy)
        assert next(parse_policies([name])) == policy
    assert "a bound" in describe(POLICIES["free-offload"])
    assert "chunks by saturation" in describe(POLICIES["caesura"])
    for name, tokens in (("stock", 2048), ("infercept-strict", 512)):
        assert f"chunks of {tokens} tokens" in describe(POLICIES[name])
    assert "no back-filling" in describe(POLICIES["infercept-strict"])


# -- what is there -------------------------------------------------------------------------------


def test_the_list_has_every_name_and_runs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    code, shown, _ = invoke("simulate", "--list")
    assert code == 0
    listed = {line.split()[0] for line in shown.splitlines() if line.startswith(" ")}
    assert {*SOURCES, *PLANS, *POLICIES} <= listed


@pytest.mark.parametrize("name", ["simulate", "replay"])
def test_help_explains_and_is_quick(name: str) -> None:
    program = (
        "import sys\n"
        "from caesura.runtime.cli.app import app\n"
        f"try: app(['{name}', '--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'vllm', 'torch', 'transformers', 'matplotlib'} & set(sys.modules)\n"
        "print(heavy or 'light')\n"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    assert shown.splitlines()[-1] == "light"
    assert "--warm-up" in shown
    assert "sixth" in shown


# -- a study -------------------------------------------------------------------------------------


def test_a_study_ends_with_its_report(made_up: Path) -> None:
    code, shown, told = invoke("simulate", *QUICK, "--out", str(made_up))
    assert code == 0, told
    assert shown.splitlines()[-1] == f"report: {made_up}/report.md"
    assert "the first 10 s are warm-up" in shown
    assert "1 sessions/s: ratio to stock, by seed" in shown
    assert "[8/8] caesura, 2/s, seed 1" in told
    form = json.loads((made_up / "report.json").read_text())
    assert [point["policy"] for point in form["points"]] == ["stock", "caesura"] * 2
    assert form["points"][1]["ratios"]["latency_mean"]["mean"] == pytest.approx(0.5, rel=1e-5)
    assert len(list((made_up / "runs").iterdir())) == 8


def test_the_next_study_goes_on_from_there(made_up: Path) -> None:
    invoke("simulate", *QUICK, "--out", str(made_up))
    more = ("--policy", "stock,caesura,infercept")
    code, _, told = invoke("simulate", *QUICK, *more, "--out", str(made_up))
    assert code == 0
    assert told.splitlines()[0] == "12 runs, 8 of them kept from before"
    assert told.splitlines()[-1] == "[4/4] infercept, 2/s, seed 1"


def test_quiet_is_quiet(made_up: Path) -> None:
    code, shown, told = invoke("simulate", *QUICK, "--quiet", "--out", str(made_up))
    assert (code, told) == (0, "")
    assert "report:" in shown


def test_the_baseline_is_the_first_or_the_one_that_is_named(made_up: Path) -> None:
    def baseline(*arguments: str) -> str:
        code, _, told = invoke("simulate", *QUICK, "-q", "-o", str(made_up), *arguments)
        assert code == 0, told
        return str(json.loads((made_up / "report.json").read_text())["study"]["baseline"])

    assert baseline() == "stock"
    assert baseline("--baseline", "caesura") == "caesura"
    assert baseline("--baseline", "none") == ""
    assert baseline("-p", "caesura") == ""


def test_clients_make_a_closed_loop(made_up: Path) -> None:
    closed = ("--clients", "5,10", "--seconds", "60", "--seeds", "1", "-j", "1")
    code, shown, told = invoke("simulate", *closed, "-o", str(made_up))
    assert code == 0, told
    assert "10 clients" in shown
    form = json.loads((made_up / "report.json").read_text())
    assert form["study"]["load"] == "5, 10 clients"
    # Nothing has to be said of clients for a workload that has them.
    own = ("-w", "pastfuture-d1", "--seeds", "1", "-j", "1", "-q", "-o", str(made_up))
    assert invoke("simulate", *own)[0] == 0
    form = json.loads((made_up / "report.json").read_text())
    assert form["study"]["load"] == "60 clients"


def test_a_run_that_fails_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use(monkeypatch, studies.refuse_rate_two)
    code, shown, _ = invoke("simulate", *QUICK, "--out", str(tmp_path / "out"))
    assert code == 1
    assert "Failed: stock, 2/s, seed 0: RuntimeError: no progress since 12.5 s" in shown
    assert (tmp_path / "out" / "report.md").exists()


def test_a_terminal_shows_one_bar_with_what_is_running() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    with watching(studies.STUDY, console, quiet=False) as bar:
        assert isinstance(bar, Bar)
        (task,) = bar._progress.tasks
        first, second = studies.STUDY.cells()[:2]
        bar.planned(12, 4)
        assert (task.total, task.description) == (8, "12 runs, 4 of them kept from before")
        bar.moved(first, 30.0)
        bar.moved(second, 6000.0)  # it drains: nobody knows for how long
        assert task.completed == pytest.approx(0.5 + 0.95)
        assert task.description == "stock, 1/s, seed 0, at 30 s; caesura, 1/s, seed 0, at 6,000 s"
        bar.ended(first)
        assert task.completed == pytest.approx(1 + 0.95)
        assert "stock" not in task.description
        bar.ended(second)
        assert (task.completed, task.description) == (2, "")


# -- mistakes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ["--policy", "stok"],
            "--policy stok: unknown policy 'stok'; choose from: caesura, fcfs, stock,",
        ),
        (["--policy", "stock,teapot"], "unknown policy 'teapot'"),
        (["--policy", "caesura:handling=teapot"], "caesura.handling must be one of"),
        (["--policy", "caesura:teapot=1"], "caesura has no setting teapot"),
        (["--policy", "stock,stock"], "the policy stock is given twice"),
        (["--workload", "teapot"], "; choose from: mix, short, "),
        (["--workload", "mix:teapot=1"], "unknown option 'teapot'"),
        (["--workload", "replay"], "it needs a data file"),
        (["--workload", "replay", "--data", "none.jsonl"], "none.jsonl: there is no such file"),
        (["--machine", "teapot"], "unknown machine 'teapot'; choose from: gptj-6b-a100-40g, "),
        (["--machine", "gptj-6b-a100-40g:link=x"], "link must be a finite number >= 0, got 'x'"),
        (["--rate", "fast"], "--rate must be numbers like 1,2.5, got 'fast'"),
        (["--rate", "0"], "above 0"),
        (["--rate", "0.0001"], "no session arrives within 60 s at 0.0001 sessions/s"),
        (["--seeds", "0"], "at least one seed"),
        (["--warm-up", "60"], "a warm-up of 60 s leaves nothing of 60 s"),
        (["--window", "5"], "within the warm-up"),
        (["--baseline", "ttl"], "the baseline 'ttl' is not among the policies: stock, caesura"),
        (["--clients", "5", "--rate", "1"], "sessions come from clients, not at a rate"),
        (["--clients", "many"], "--clients must be numbers like 1,2.5, got 'many'"),
        (["--out", "/dev/null/out"], "/dev/null/out cannot be written: Not a directory"),
    ],
)
def test_a_mistake_is_a_line(made_up: Path, arguments: list[str], told: str) -> None:
    code, shown, said = invoke(
        "simulate", "--seconds", "60", "--seeds", "1", "-q", "-o", str(made_up), *arguments
    )
    assert code == 2
    assert shown == ""
    assert said.startswith("error: ")
    assert told in said
    assert len(said.splitlines()) == 1
    # Found before anything is run.
    assert not made_up.exists()


# -- replay --------------------------------------------------------------------------------------


def record_file(path: Path) -> Path:
    """Four sessions of one call each, 10 s from one another."""
    lines = []
    for number in range(4):
        name, begin = f"r{number}", 1_000_000.0 + 10 * number
        lines += [
            {"kind": "steps", "at": []},
            {
                "kind": "pause", "request": name, "tool": "weather", "at": begin + 1,
                "arrival": begin, "given_tokens": 100, "decoded_tokens": 20,
                "context_tokens": 120, "outcome": "resumed", "pause_seconds": 2.0,
            },
            {
                "kind": "session", "request": name, "arrival": begin, "calls": 1,
                "given_tokens": 10, "decoded_tokens": 30, "at": begin + 5,
            },
        ]  # fmt: skip
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def test_a_record_is_replayed_at_its_own_rate_or_faster(made_up: Path, tmp_path: Path) -> None:
    record = record_file(tmp_path / "records.jsonl")
    for speed, load, counted in (("1", "0.1", "from 5 s to 30 s"), ("2", "0.2", "to 15 s")):
        code, shown, told = invoke(
            "replay", str(record), "--speed", speed, "-j", "1", "-o", str(made_up)
        )
        assert code == 0, told
        assert f"load      {load} sessions/s" in shown
        assert counted in shown
        assert "data      records.jsonl" in shown


def test_trajectories_are_replayed(made_up: Path, tmp_path: Path) -> None:
    prompt = Segment(source="prompt", tokens=(1,) * 9)
    made = []
    for number, at in enumerate((None, 100.0, 110.0, 120.0)):
        turn = Segment(source="sampled", tokens=(2,) * 3, started_at=at, seconds=1.0)
        branch = Branch(id=f"{number}/0", session=str(number), model="m", segments=(prompt, turn))
        made.append(Trajectory(session=str(number), branches=(branch,)))
    write_jsonl(tmp_path / "rollouts.jsonl", made)
    code, shown, told = invoke(
        "replay", str(tmp_path / "rollouts.jsonl"), "-j", "1", "-o", str(made_up)
    )
    assert code == 0, told
    assert "load      0.1 sessions/s" in shown
    assert "left out: 1 session whose times are not known" in told


def test_a_recording_is_replayed_under_its_own_policy_too(made_up: Path, tmp_path: Path) -> None:
    lines = record_file(tmp_path / "records.jsonl").read_text().splitlines()
    store = Store(tmp_path / "traces.sqlite")
    about = {"handling": "swap", "ranking": "ssjf", "most_running": 4}
    number = store.begin("what was", "serve", about, started=1_000_000.0)
    cut = {"kind": "lanes", "request": ["x"], "state": ["waiting"], "at": [1_000_005.0]}
    store.append(number, [row_of(entry) for entry in (*map(json.loads, lines), cut)])
    store.end(number, 1_000_060.0)
    code, shown, told = invoke(
        *("replay", "--recording", "last", "--store", str(store.path), "-o", str(made_up)),
        *("-p", "preserve,swap", "-j", "1"),
    )
    assert code == 0, told
    assert "baseline  as recorded" in shown
    form = json.loads((made_up / "report.json").read_text())
    first = form["study"]["policies"][0]
    assert (first["name"], first["most_running"]) == ("as recorded", 4)
    assert first["settings"] == {"handling": "swap", "ranking": "ssjf", "admission": "vllm"}
    assert f"left out: 1 session {GOES_ON}" in told
    assert "does not tell admission" in told


@pytest.mark.parametrize(
    ("text", "arguments", "told"),
    [
        ("", [], "no whole session is recorded"),
        ("{", [], "records.jsonl:1: not JSON"),
        (None, [], "there is no such file"),
        ("good", ["--speed", "0"], "--speed must be a factor above 0, got 0"),
        ("good", ["--policy", "teapot"], "unknown policy 'teapot'"),
        ("one", [], "a single session has no rate"),
    ],
)
def test_a_record_that_cannot_be_replayed(
    made_up: Path, tmp_path: Path, text: str | None, arguments: list[str], told: str
) -> None:
    record = tmp_path / "records.jsonl"
    if text in ("good", "one"):
        record_file(record)
        if text == "one":
            record.write_text("".join(record.read_text().splitlines(keepends=True)[:3]))
    elif text is not None:
        record.write_text(text)
    code, _, said = invoke("replay", str(record), "-o", str(made_up), *arguments)
    assert code == 2
    assert told in said
    assert len(said.splitlines()) == 1


# -- with the real engine ------------------------------------------------------------------------

SMALL = ("--rate", "0.5", "--seconds", "30", "--seeds", "1", "--jobs", "1")


@pytest.mark.slow
def test_a_small_study_through_the_real_engine(tmp_path: Path) -> None:
    """Twice, in folders of their own: the same figures but for the wall clock."""
    forms = []
    for name in ("one", "other"):
        code, shown, told = invoke("simulate", *SMALL, "-o", str(tmp_path / name))
        assert code == 0, told
        assert "Failed" not in shown
        forms.append(json.loads((tmp_path / name / "report.json").read_text()))
    for form in forms:
        for run in form["runs"]:
            assert run["figures"].pop("wall_seconds") > 0
        for point in form["points"]:
            point["means"].pop("wall_seconds")
            point["ratios"].pop("wall_seconds")
    assert forms[0] == forms[1]
    for run in forms[0]["runs"]:
        figures = run["figures"]
        assert figures["sessions"] > 5
        assert figures["unfinished"] == 0
        assert 0 < figures["ttft_mean"] < figures["latency_mean"] <= figures["latency_p99"] < 60
        assert figures["tokens_per_second"] > 0


@pytest.mark.slow
def test_a_record_through_the_real_engine(tmp_path: Path) -> None:
    record = record_file(tmp_path / "records.jsonl")
    out = tmp_path / "out"
    code, _, told = invoke("replay", str(record), "--warm-up", "0", "-j", "1", "-o", str(out))
    assert code == 0, told
    for run in json.loads((out / "report.json").read_text())["runs"]:
        assert run["figures"]["sessions"] == 4
        assert run["figures"]["unfinished"] == 0
        # 50 tokens at some 10 ms each; the tool's 2 s are not in it.
        assert 0.25 < run["figures"]["latency_mean"] < 2.0


@pytest.mark.slow
def test_an_interrupted_command_says_how_to_go_on(tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = ["simulate", "--rate", "0.2,3", "--seconds", "60", "--jobs", "1", "-o", str(out)]
    with subprocess.Popen(
        [sys.executable, "-m", "caesura", *arguments],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    ) as study:
        wait_until(lambda: list(out.glob("runs/*.json.gz")), seconds=200)
        study.send_signal(signal.SIGINT)
        assert study.wait(60) == 130
        assert study.stderr is not None
        told = study.stderr.read()
    kept = len(list(out.glob("runs/*.json.gz")))
    assert f"interrupted: {kept} runs are kept in {out}/runs" in told
    assert "Traceback" not in told
