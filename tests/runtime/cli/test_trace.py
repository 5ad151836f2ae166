"""`caesura trace`, and what the other commands record."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from caesura.runtime.cli.options import Traces
from caesura.runtime.cli.serve import described, traces_line
from caesura.runtime.errors import UsageError
from caesura.runtime.recording import catalog
from caesura.runtime.recording.entries import Entry, row_of
from caesura.runtime.recording.runs import Runs
from caesura.runtime.recording.storage import Store
from caesura.runtime.testing import ScriptedEngine
from caesura.runtime.tracing.recorded import recorded
from caesura.scheduler.records import WaitRecord
from caesura.tools.artifacts import ArtifactStore
from caesura.tools.config.caesura_toml import Config, TraceSettings

from .traces import stored, trace

REQUEST = "session-abc-1f2e"
PRICES = {"preserve": 8.0, "discard": 2.5, "swap": None}


def span(name: str, number: str, start: float, end: float | None, **attributes: Any) -> Entry:
    return {
        "kind": "span",
        "trace": "aaaa1111",
        "span": number,
        "parent": None if number == "r1" else "r1",
        "name": name,
        "start": start,
        "end": end,
        "status": "unset",
        "message": "",
        "attributes": {"gen_ai.operation.name": name.partition(" ")[0], **attributes},
        "events": [],
    }


def pause(**more: Any) -> Entry:
    return {
        "kind": "opening",
        "request": REQUEST,
        "session": REQUEST,
        "at": 101.5,
        "tool": "search",
        "predicted_seconds": 4.0,
        "prices": PRICES,
        "context_tokens": 321,
        "blocks": 15,
        "bytes": 15 << 18,
        **more,
    }


ENDED = {
    "kind": "pause",
    "decisions": [[0.25, "discard", 12, "admit", None, None, None, "third"], [0.5, "swap", 3]],
    "outcome": "resumed",
    "handling": "discard",
    "pause_seconds": 2.0,
    "queue_seconds": 0.125,
    "loaded_tokens": 0,
    "recomputed_tokens": 300,
    "cost": 3.5,
    "queue_cost": 1.25,
    "work_cost": 0.25,
    "hindsight": {"preserve": 4.0, "discard": 2.5, "swap": None},
    "regret": 1.0,
    "wanted_seconds": 1.5,
    "wanted_requests": 2,
    "wanted_by": [["other-1-x", 0.75], ["third", 0.5]],
}
ENTRIES: list[Entry] = [
    span("invoke_agent", "r1", 100.0, None),
    {
        "kind": "wait",
        "request": REQUEST,
        "since": 100.25,
        "until": 100.5,
        "steps": 7,
        "lacked": {"blocks": 5},
    },
    span("execute_tool search", "t1", 101.5, None, **{"gen_ai.tool.name": "search"}),
    span(
        "chat m",
        "c1",
        100.0,
        101.5,
        **{
            "caesura.request.id": "session-abc",
            "caesura.appended_tokens": 300,
            "gen_ai.usage.output_tokens": 21,
            "gen_ai.conversation.id": "talk-9",
        },
    ),
    pause(),
    span("execute_tool search", "t1", 101.5, 103.5, **{"gen_ai.tool.name": "search"}),
    pause(**ENDED),
    span("invoke_agent", "r1", 100.0, 104.0, **{"caesura.appended_tokens": 300}),
    pause(request="other-1-x", session="other-1-x", at=102.0),
    {"kind": "steps", "at": [101.0], "seconds": [0.02]},
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return stored(tmp_path, ENTRIES, ended=110.0)


def test_recordings_are_listed(file: Path) -> None:
    line = trace("ls", "--store", file).stdout.splitlines()[1].split()
    assert line[:3] == ["1", "caesura", "serve"]
    sessions = sum(entry["kind"] == "session" for entry in ENTRIES)
    assert line[5:] == ["11", str(sessions), "1", str(len(ENTRIES))]
    (told,) = json.loads(trace("ls", "--json", "--store", file).stdout)
    assert (told["title"], told["kinds"]["span"]) == ("caesura serve", 5)


def test_recordings_of_several_servers_tell_which_made_them(file: Path) -> None:
    store = Store(file)
    for server in ("a", None):
        title, source, about = described("m", server, {"splice": True})
        store.append(store.begin(title, source, about), [row_of(ENTRIES[0])])
    store.close()
    assert [each.about for each in catalog.recordings(file)] == [
        {"splice": True},
        {"splice": True, "server": "a"},
        {},
    ]
    head, *lines = trace("ls", "--store", file).stdout.splitlines()
    assert head.split()[:3] == ["id", "recording", "server"]
    column = head.index("server")
    assert [line[column : column + 6].strip() for line in lines] == ["", "a", ""]
    assert "caesura serve, m on a" in lines[1]


def test_a_recording_says_whether_its_server_keeps_trajectories() -> None:
    told = [described("m", None, {}, keeps)[2] for keeps in (False, True)]
    assert told == [{}, {"trajectories": True}]


def test_the_engines_death_is_listed_and_the_session_goes_on_through_it(tmp_path: Path) -> None:
    died = {"kind": "restart", "at": 102.0, "why": "it was killed"}
    new = {"request": "session-new-9", "session": "session-new-9"}
    entries = [
        *ENTRIES[:5],
        died | {"attempts": 0, "seconds": None, "state": "down"},
        died | {"attempts": 2, "seconds": 31.25, "state": "restarted"},
        {"kind": "continued", "request": "session-new", "lost": "session-abc", "at": 133.5},
        {"kind": "session", **new, "at": 140.0, "arrival": 133.5, "outcome": "stop"},
        span("invoke_agent", "r1", 100.0, 141.0),
        died | {"at": 150.0, "attempts": 1, "seconds": None},  # as older versions wrote it
    ]
    file = stored(tmp_path, entries, ended=200.0)
    listed = trace("ls", "1", "--store", file).stdout
    assert "(it was killed): it took work again after 31.2 s (2 starts)" in listed
    assert listed.count("the engine died at") == 2 and "it was given up after 1 start" in listed
    assert "session-new-9" not in listed  # it is no session of its own
    shown = trace("show", "session-new", "--store", file).stdout
    assert "+33.500 s its engine had died, and it goes on in the next one" in shown
    assert "request session-new, in the place of session-abc" in shown


def test_recordings_are_named_noted_pinned_and_deleted(file: Path) -> None:
    trace("name", "1", "before the fix", "--store", file)
    trace("note", "last", "the link was [slow]", "--store", file)
    trace("pin", "1", "--store", file)
    listed = trace("ls", "--store", file).output
    assert "before the fix" in listed and "pinned, the link was [slow]" in listed
    assert trace("note", "1", "--store", file).output == "the link was [slow]\n"
    trace("note", "1", "red \x1b[31m", "--store", file)
    assert "\x1b" not in trace("note", "1", "--store", file).output
    trace("unpin", "1", "--store", file)
    assert "pinned" not in trace("ls", "--store", file).output
    missing = trace("rm", "1", "7", "--store", file, code=1)
    assert "no recording '7'" in missing.output
    trace("rm", "1", "--store", file)
    assert "nothing is recorded" in trace("ls", "--store", file).output


def test_the_runs_of_a_recording_are_listed(file: Path) -> None:
    _, run, session = trace("ls", "last", "--store", file).stdout.splitlines()
    words = ["run", "with", "search"]
    assert run.split() == ["r1", *words, *run.split()[4:6], "4.00", *"111", "1.0", "ok"]
    assert session.split()[:2] == ["other-1-x", "session"]
    runs = json.loads(trace("ls", "1", "--json", "--store", file).stdout)
    assert [each["id"] for each in runs] == ["r1", "other-1-x"]


@pytest.mark.parametrize("name", ["r1", "aaaa", "talk-9", "session-abc", "abc-1f", REQUEST])
def test_a_run_is_shown_with_all_that_happened(file: Path, name: str) -> None:
    text = trace("show", name, "--store", file).stdout
    shown = [line.lstrip("│├─└ ") for line in text.splitlines()]
    assert shown == [
        "run with search 4.000 s, 1 turn, 1 call, 300 tokens in, 0 out, 0 cached",
        "+0.000 s turn 1 1.500 s, 300 tokens in, 21 out, 0 cached",
        "+0.250 s wait 0.250 s, 7 steps, lacked blocks in 5 steps",
        "+1.500 s call search 2.000 s",
        "+1.500 s pause search 2.000 s, KV discard, regret 1.00 block-seconds",
        "expected 4.000 s, was 2.000 s",
        "held 15 blocks, 3.8 MiB",
        "priced at preserve 8.00, discard 2.50, swap impossible block-seconds",
        "with the true length preserve 4.00, discard 2.50, swap impossible, it cost 3.50",
        "2.00 of it while paused, 1.25 while it queued, 0.25 by loading and recomputing",
        "its memory was wanted for 1.500 s, 2 waited: other-1-x 0.750 s, third 0.500 s",
        "after 0.250 s: discard 12 blocks (to admit a waiting request: third)",
        "after 0.500 s: swap 3 blocks",
        "321 tokens of context: 0 loaded, 300 recomputed; queued 0.125 s",
    ]
    told = json.loads(trace("show", name, "--json", "--store", file).stdout)
    (found,) = told["sessions"][0]["pauses"]
    assert (found["prices"], found["regret"]) == (PRICES, 1.0)


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        (
            {"outcome": "spliced", "why": "unchanged", "spliced_tokens": 1280},
            "1,280 tokens spliced",
        ),
        (
            {"outcome": "rendered", "why": "changed", "field": "messages[3].arguments"},
            "history rendered again (changed: messages[3].arguments)",
        ),
        ({"outcome": "rendered", "why": "unknown"}, "history rendered again (unknown)"),
        (
            {"outcome": "rendered", "why": "changed", "kept": "It is [Mon]", "sent": "It is\nTue"},
            'history rendered again (changed) remembered: "It is [Mon]" came: "It is\\nTue"',
        ),
    ],
)
def test_a_turn_tells_how_its_history_became_tokens(
    tmp_path: Path, told: dict[str, Any], shown: str
) -> None:
    attributes = {f"caesura.follow_up.{name}": value for name, value in told.items()}
    ids = {"caesura.request.id": "session-abc", "gen_ai.conversation.id": "talk-9"}
    turn = span("chat m", "c1", 100.0, 101.5, **ids, **attributes)
    entries = [turn if entry.get("span") == turn["span"] else entry for entry in ENTRIES]
    assert turn in entries
    text = trace("show", "r1", "--store", stored(tmp_path, entries, ended=110.0)).stdout
    drawn = str.maketrans("", "", "│├└─")
    assert f"turn 1 1.500 s, {shown}" in " ".join(text.translate(drawn).split())


def test_a_pause_whose_memory_nobody_wanted_has_no_regret(tmp_path: Path) -> None:
    free: dict[str, Any] = {"hindsight": None, "regret": None, "cost": 0.0, "queue_cost": 0.0}
    free |= {"wanted_seconds": 0.0, "wanted_by": []}
    entries = [entry for entry in ENTRIES if entry.get("kind") != "pause"]
    file = stored(tmp_path, [*entries, pause(**{**ENDED, **free})], ended=110.0)
    text = trace("show", "r1", "--store", file).stdout
    assert "KV discard, nobody wanted its memory\n" in text and "regret" not in text
    _, run, _ = trace("ls", "last", "--store", file).stdout.splitlines()
    assert run.split()[-2:] == ["-", "ok"]


def test_a_regret_of_a_version_that_priced_unwanted_memory_is_not_added(tmp_path: Path) -> None:
    old = {key: value for key, value in ENDED.items() if key != "queue_cost"}
    entries = [entry for entry in ENTRIES if entry.get("kind") != "pause"]
    file = stored(tmp_path, [*entries, pause(**old)], ended=110.0)
    assert "regret by an older measure" in trace("show", "r1", "--store", file).stdout
    _, run, _ = trace("ls", "last", "--store", file).stdout.splitlines()
    assert run.split()[-2:] == ["1", "ok"]


def test_a_small_regret_is_not_shown_as_none(tmp_path: Path) -> None:
    entries = [entry for entry in ENTRIES if entry.get("kind") != "pause"]
    file = stored(tmp_path, [*entries, pause(**{**ENDED, "regret": 0.029})], ended=110.0)
    _, run, _ = trace("ls", "last", "--store", file).stdout.splitlines()
    assert run.split()[-2:] == ["0.029", "ok"]


def test_a_session_that_is_of_no_run_is_shown(file: Path) -> None:
    text = trace("show", "other", "--store", file).stdout
    assert text.startswith("session other-1-x under way")
    assert "pause search not over" in text and "expected 4.000 s\n" in text


def test_a_pause_of_which_little_is_known_is_shown(file: Path) -> None:
    store = Store(file)
    odd = {"kind": "pause", "request": "odd", "at": 1.0, "outcome": "ended", "handling": "none"}
    store.append(1, [row_of(odd)])
    store.close()
    text = trace("show", "odd", "--store", file).stdout
    assert "pause ? s, no result came, regret ? block-seconds" in text


def test_what_is_not_there_is_told_in_a_line(file: Path, tmp_path: Path) -> None:
    for arguments, told in (
        (("ls", "--store", tmp_path / "no"), "there are no traces in"),
        (("ls", "9", "--store", file), "there is no recording '9'"),
        (("show", "nobody", "--store", file), "no run or session is called 'nobody'"),
        (
            ("export", "-o", "x.pdf", "--store", file),
            "unknown suffix of 'x.pdf'; choose from: .html",
        ),
        (
            ("export", "-o", "x", "--format", "pdf", "--store", file),
            "unknown format 'pdf'; choose from: html",
        ),
        (("export", "--last", "soon", "--store", file), "invalid --last 'soon'"),
        (("export", "--from", "soon", "--store", file), "invalid time 'soon'"),
        (
            ("export", "--from", "5", "--to", "4", "--store", file),
            "--from must be before --to, got 5 and 4",
        ),
        (
            ("export", "--from", "5", "--last", "4s", "--store", file),
            "--last 4s excludes --from and --to",
        ),
        (("export", "--records", tmp_path / "no", "-o", tmp_path / "x.html"), "cannot be read"),
    ):
        result = trace(*arguments, code=1)
        assert told in " ".join(result.stderr.split())
        assert "Traceback" not in result.stderr
    assert not (tmp_path / "x.html").exists()


def test_several_that_begin_so(file: Path) -> None:
    store = Store(file)
    store.append(1, [row_of(pause(request="other-2", session="other-2", at=103.0))])
    store.close()
    told = " ".join(trace("show", "other", "--store", file, code=1).stderr.split())
    assert "several ids begin with 'other', such as other-1-x, other-2: type more of it" in told


def test_runs_are_called_by_what_was_asked_and_faults_by_what_happened(tmp_path: Path) -> None:
    messages = [{"role": "user", "parts": [{"type": "text", "content": "What is\n17 * 23?"}]}]
    malformed = {"name": "caesura.call_malformed", "at": 100.5, "attributes": {}}
    approved = {"caesura.person.approved": False}
    settled = {"name": "caesura.person.settled", "at": 101.0, "attributes": approved}
    failed = {"status": "error"}
    entries = [
        span("invoke_agent", "r1", 100.0, 104.0, **{"error.type": "cancelled"}) | failed,
        span("chat m", "c1", 100.0, 101.0, **{"gen_ai.input.messages": json.dumps(messages)})
        | {"events": [malformed]},
        span("execute_tool mail", "t1", 101.0, 102.0, **{"error.type": "failed"})
        | failed
        | {"events": [settled]},
        pause(request="r", session="r", handling="none", regret=0.029, queue_cost=0.0)
        | {"kind": "pause"},
    ]
    file = stored(tmp_path, entries, ended=110.0)
    _, run, session = trace("ls", "1", "--store", file).stdout.splitlines()
    assert "What is 17 * 23?" in run and "cancelled, the client left" in run
    assert "0.029" in session
    shown = trace("show", "r1", "--store", file).stdout
    assert shown.startswith("What is 17 * 23? 4.000 s, 1 turn, 1 call, cancelled, the client left")
    assert "1 call could not be read" in shown
    assert "1.000 s, denied by a person" in shown


def test_a_session_that_was_asked_twice_is_shown_whole(file: Path) -> None:
    second = {"trace": "bbbb2222", "end": 109.0}
    run = {**span("invoke_agent", "r1", 105.0, None), **second}
    turn = span("chat m", "t9", 105.5, None, **{"caesura.request.id": "session-abc"})
    store = Store(file)
    store.append(1, [row_of(run), row_of({**turn, **second})])
    store.close()
    told = json.loads(trace("show", REQUEST, "--json", "--store", file).stdout)
    assert [each["run"]["start"] for each in told] == [100.0, 105.0]
    lines = trace("show", REQUEST, "--store", file).stdout.splitlines()
    titles = [line for line in lines if line.startswith("run")]
    assert [title.split(",")[0] for title in titles] == ["run with search 4.000 s", "run 4.000 s"]


@pytest.mark.parametrize(
    ("span", "kinds"),
    [
        (
            (),
            [
                "span",
                "wait",
                "span",
                "span",
                "opening",
                "span",
                "pause",
                "span",
                "opening",
                "steps",
            ],
        ),
        (("--last", "8.4s"), ["span", "opening", "pause", "span", "opening"]),
        (("--from", "104", "--to", "110"), ["span", "opening"]),
        (("--to", "100.1"), ["span", "span", "span"]),
    ],
)
def test_exports_can_be_cut(file: Path, tmp_path: Path, span: Any, kinds: list[str]) -> None:
    out = tmp_path / "out.jsonl"
    trace("export", "1", "-o", out, *span, "--store", file)
    header, *found = map(json.loads, out.read_text().splitlines())
    assert (header["kind"], header["title"]) == ("recording", "caesura serve")
    assert [each["kind"] for each in found] == kinds


def test_an_export_can_be_exported_again(file: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    trace("export", "-o", first, "--store", file)
    trace("export", "--records", first, "-o", second, "--store", tmp_path / "no")
    assert first.read_text() == second.read_text()
    both = tmp_path / "both.json"
    told = trace("export", "1", "--records", first, "-o", both, "--store", file)
    assert "2 recording(s)" in told.stderr
    assert len(json.loads(both.read_text())["recordings"]) == 2


@pytest.mark.parametrize("name", ["out.html", "out.perfetto.json"])
def test_other_formats(file: Path, tmp_path: Path, name: str) -> None:
    trace("export", "-o", tmp_path / name, "--store", file)
    text = (tmp_path / name).read_text()
    if name.endswith("json"):
        assert json.loads(text)["traceEvents"]
    else:
        assert 'id="caesura-data"' in text


def test_a_wait_that_comes_before_its_session_is_known() -> None:
    wait = WaitRecord(request="b", since=1.0, until=2.0, steps=3)
    (session,) = Runs([wait.entry(), pause(request="b", session="a", at=3.0)]).sessions()
    assert (session.id, session.waits, session.start) == ("a", [wait], 1.0)


# -- what commands record --------------------------------------------------------------------------


async def test_a_command_records_where_it_is_told_to(tmp_path: Path) -> None:
    engine, config = ScriptedEngine([]), Config()
    async with recorded(engine, Traces(tmp_path / "t"), config, "test", "sdk") as recorder:
        assert recorder is not None
        assert traces_line(recorder).startswith("traces, without content, in ")
        recorder.add([{"kind": "steps"}])
    (found,) = catalog.recordings(tmp_path / "t")
    assert (found.entries, found.live, found.content) == (1, False, False)
    assert found.about["model"] == "scripted"


@pytest.mark.parametrize("where", ["[trace]\nenabled = false", ""])
async def test_recording_can_be_switched_off(tmp_path: Path, where: str) -> None:
    (tmp_path / "caesura.toml").write_text(where)
    config = Config.load(tmp_path / "caesura.toml")
    traces = Traces(off=not where)
    async with recorded(ScriptedEngine([]), traces, config, "test", "sdk") as recorder:
        assert recorder is None
        assert traces_line(recorder) == "nothing is recorded"


async def test_a_file_that_is_named_is_recorded_in_whatever_is_configured(tmp_path: Path) -> None:
    (tmp_path / "caesura.toml").write_text("[trace]\nenabled = false")
    config = Config.load(tmp_path / "caesura.toml")
    async with recorded(ScriptedEngine([]), Traces(tmp_path / "t"), config, "t", "sdk"):
        pass
    assert (tmp_path / "t").exists()


@pytest.mark.parametrize("how", ["option", "configuration", "environment"])
async def test_content_is_recorded_if_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    settings = 'path = "here.sqlite"\nmax_mb = 2\nmax_days = 0.5\n'
    content = "content = true" if how == "configuration" else ""
    (tmp_path / "caesura.toml").write_text(f"[trace]\n{settings}{content}")
    if how == "environment":
        monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")
    config = Config.load(tmp_path / "caesura.toml")
    traces = Traces(content=how == "option")
    async with recorded(ScriptedEngine([]), traces, config, "test", "serve") as recorder:
        assert recorder is not None and recorder.content
        assert recorder.store.path == tmp_path / "here.sqlite"
        assert recorder.store.bounds.max_bytes == 2 * 2**20
        assert recorder.store.bounds.max_age_seconds == 12 * 3600


async def test_a_recording_is_called_what_the_options_or_the_configuration_say(
    tmp_path: Path,
) -> None:
    config = Config(path=tmp_path / "caesura.toml", trace=TraceSettings(title="configured"))
    traces = Traces(tmp_path / "t.sqlite")
    for options in (traces, replace(traces, title="named")):
        async with recorded(ScriptedEngine([]), options, config, "usual", "sdk"):
            pass
    async with recorded(ScriptedEngine([]), traces, Config(), "usual", "sdk"):
        pass
    titles = [each.title for each in catalog.recordings(tmp_path / "t.sqlite")]
    assert titles == ["usual", "named", "configured"]


def test_options_that_do_not_go_together(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--no-trace excludes --trace-title"):
        Traces(off=True, title="x").check()
    with pytest.raises(UsageError, match="also give --trace FILE"):
        Traces.into(None, "x")
    with pytest.raises(UsageError, match="--no-trace excludes --trace-content"):
        Traces(off=True, content=True).check()
    with pytest.raises(UsageError, match="there is no directory"):
        Traces(tmp_path / "no" / "t").check()


def test_requests_to_the_server_are_counted(tmp_path: Path) -> None:
    answered = {
        "kind": "http",
        "at": 104.0,
        "route": "/v1/chat/completions",
        "status": 200,
        "seconds": 4.25,
        "answer": "chatcmpl-1",
    }
    refused = {**answered, "status": 429, "answer": "", "code": "too_many_requests", "count": 40}
    run = span("invoke_agent", "r1", 100.0, 104.0, **{"gen_ai.response.id": "chatcmpl-1"})
    file = stored(tmp_path, [run, answered, refused], ended=110.0)
    lines = trace("ls", "1", "--store", file).stdout.splitlines()
    assert lines[-1] == "requests to the server: 1 with 200, 40 with 429 too_many_requests"
    assert "status 200 after 4.250 s" in trace("show", "r1", "--store", file).stdout
    told = json.loads(trace("show", "r1", "--json", "--store", file).stdout)
    assert told["http"]["answer"] == "chatcmpl-1"


# -- beside a configuration ------------------------------------------------------------------------


def test_a_folder_whose_configuration_is_not_trusted_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """These commands start nothing of it."""
    stored(tmp_path, ENTRIES, ended=110.0)
    (tmp_path / "caesura.toml").write_text(
        '[trace]\npath = "traces.sqlite"\n[tools.mine]\nfunction = "nowhere:mine"\n'
    )
    monkeypatch.chdir(tmp_path)
    trace("ls")
    trace("export", "-o", "out.html")
    assert (tmp_path / "out.html").is_file()


def test_files_of_tools_are_found_where_the_server_wrote_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tmp_path / "of the server"
    made = ArtifactStore(there).put(b"a picture", "png")
    called = span(
        "execute_tool draw", "t1", 101.0, 102.0, **{"caesura.tool.artifacts": [made.name]}
    )
    store = Store(tmp_path / "traces.sqlite")
    about = {"model": "m", "artifacts_directory": str(there)}
    number = store.begin("caesura serve", "serve", about, content=True, started=99.0)
    store.append(number, [row_of(called)])
    store.end(number, 110.0)
    store.close()
    out = tmp_path / "out.json"
    told = trace("export", "-o", out, "--store", store.path)
    assert "1 pictures and sounds" in told.stderr and "left out" not in told.stderr
    written = json.loads(out.read_text())
    assert list(written["artifacts"]) == [made.name]
    # Other machines need not know where the files lie on this one.
    assert written["recordings"][0]["about"] == {"model": "m"}
    assert "of the server" not in trace("ls", "--json", "--store", store.path).stdout
