"""Sessions in a store: they go on from their tokens, in one process at a time."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from caesura import Agent, RequestFailed, ScriptedEngine, Sessions, UsageError, tool
from caesura.runtime.events import Usage
from caesura.runtime.journal.store import JournalUnavailable, SqliteJournal
from caesura.runtime.run.fold import CANCELLED
from caesura.runtime.sdk.keeper import Keeper
from caesura.runtime.sdk.record import End, Rewound, SessionRecord
from caesura.runtime.testing import Item, call, calls, fail, inline, malformed, say
from caesura.scheduler.session_log import LoggedTurn, TurnOutcome
from tests.kit.loops import another_loop


@tool
def double(n: int) -> int:
    """Double a number."""
    return 2 * n


@pytest.fixture
def store(tmp_path: Path) -> Sessions:
    return Sessions(tmp_path / "sessions.sqlite")


def sent(engine: ScriptedEngine) -> list[list[list[str]]]:
    """Return the roles of the messages of each turn of each session of the engine."""
    return [[[each["role"] for each in turn] for turn in one.turns] for one in engine.sessions]


async def test_a_session_goes_on_in_another_process_without_rendering(store: Sessions) -> None:
    first = ScriptedEngine([calls(call("double", n=2), text="So:"), say("4"), say("Yes.")])
    async with Agent(first, [double]).session(id="u", store=store) as session:
        await session.run("Double 2.")
        await session.run("Sure?")
        before, usage = session.messages, session.usage

    second = ScriptedEngine([inline("It is ", "double", n=3), say(" then.")])
    async with second, Agent(second, [double]).session(id="u", store=store) as session:
        assert session.messages == before and session.usage == usage
        answer = await session.run("And 3?")
        assert answer.text == "It is  then." and answer.messages[: len(before)] == before
        assert session.usage.turns == usage.turns + 2
    # Its last turn was replayed, and only the new prompt was added.
    roles = ["user", "assistant", "tool", "assistant", "user"]
    assert sent(second) == [[roles, ["user"], ["tool"]]]

    third = ScriptedEngine([say("Bye.")])
    async with third, Agent(third, [double]).session(id="u", store=store) as session:
        await session.run("Bye.")
        ids = [made["id"] for each in session.messages for made in each.get("tool_calls", ())]
    assert [len(turn) for turn in sent(third)[0]] == [7, 1, 1]
    assert len(ids) == len(set(ids)) == 2


async def test_a_malformed_call_and_an_unknown_tool_are_replayed_as_they_were(
    store: Sessions,
) -> None:
    turn = calls(malformed("<call", "no name"), call("triple", n=1))
    async with Agent(ScriptedEngine([turn, say("Hm.")]), [double]).session(
        id="u", store=store
    ) as session:
        await session.run("Go.")
    engine = ScriptedEngine([say("Bye.")])
    async with engine, Agent(engine, [double]).session(id="u", store=store) as session:
        await session.run("Bye.")
    assert [len(turn) for turn in sent(engine)[0]] == [1, 2, 1]


async def test_the_shortest_program_keeps_a_session(tmp_path: Path) -> None:
    for number in range(3):
        agent = Agent(ScriptedEngine([say(f"Answer {number}.")]))
        async with agent.session(id="user-7", store=tmp_path / "sessions.sqlite") as session:
            assert len((await session.run("Next.")).messages) == 2 * number + 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tools": []}, "are rendered again"),
        ({"model": "another"}, "are rendered again"),
        ({"instructions": "Be long."}, "are rendered again"),
        ({}, ""),
    ],
)
async def test_another_model_other_tools_or_instructions_are_rendered_again_and_said(
    store: Sessions, caplog: pytest.LogCaptureFixture, change: dict[str, Any], said: str
) -> None:
    agent = Agent(ScriptedEngine([say("A.")]), [double], instructions="Be brief.")
    async with agent.session(id="u", store=store) as session:
        await session.run("Hi.")
    engine = ScriptedEngine([say("B.")], model=change.get("model", "scripted"))
    told = change.get("instructions", "Be brief.")
    agent = Agent(engine, change.get("tools", [double]), instructions=told)
    async with agent.session(id="u", store=store) as session:
        await session.run("Bye.")
        assert session.messages[0] == {"role": "system", "content": told}
        assert len(session.messages) == 5
        session.rewind(2)
        assert len(session.messages) == 1
    assert (said in caplog.text) and bool(caplog.records) == bool(said)
    roles = ["system", "user", "assistant", "user"]
    assert sent(engine) == ([[roles]] if said else [[roles[:2], ["user"]]])


async def test_typed_answers_and_sub_agents_are_kept_too(store: Sessions) -> None:
    class Offer(BaseModel):
        euros: int

    script: list[Item] = [
        call("helper", task="Ask."),
        say("24"),
        say('{"euros": "x"}'),
        say('{"euros": 24}'),
    ]
    engine = ScriptedEngine(script)
    helper = Agent(engine, name="helper", instructions="Help.")
    agent = Agent(engine, [helper], output=Offer)
    async with agent.session(id="u", store=store) as session:
        assert (await session.run("How much?")).output.euros == 24
        assert len(session.messages) == 7
    async with ScriptedEngine([say('{"euros": 48}')]) as engine:
        agent = Agent(engine, [Agent(engine, name="helper", instructions="Help.")], output=Offer)
        async with agent.session(id="u", store=store) as session:
            assert (await session.run("And two?")).output.euros == 48
            session.rewind()
            assert len(session.messages) == 7
            session.rewind()  # the answer that did not fit was no prompt of the user's
            assert len(session.messages) == 1
    assert [len(turn) for turn in sent(engine)[0]] == [6, 1]


async def test_a_cut_run_is_not_replayed_and_those_before_it_are(store: Sessions) -> None:
    entered = asyncio.Event()

    @tool
    async def wait() -> None:
        """Wait."""
        entered.set()
        await asyncio.Event().wait()

    engine = ScriptedEngine([say("Hi."), call("wait"), say("Yes.")])
    async with Agent(engine, [wait]).session(id="u", store=store) as session:
        await session.run("Hello.")
        task = asyncio.create_task(session.run("Wait."))
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert session.messages[-1]["content"] == CANCELLED
        await session.run("There?")
        # What came before the run that was cut is not rendered again.
        rest = ["user", "assistant", "tool", "user"]
        assert sent(engine)[1] == [["user"], rest]
        before = session.messages
    engine = ScriptedEngine([say("Bye.")])
    async with engine, Agent(engine, [wait]).session(id="u", store=store) as session:
        assert session.messages == before
        await session.run("Bye.")
    assert sent(engine) == [[["user", "assistant", *rest], ["user"]]]


async def test_one_session_is_open_once(store: Sessions, tmp_path: Path) -> None:
    again = Sessions(tmp_path / "sessions.sqlite")
    agent = Agent(ScriptedEngine([say("A."), say("B.")]))
    async with agent.session(id="u", store=store) as session:
        for each in (store, again):
            with pytest.raises(UsageError, match="'u' is open elsewhere: close it there"):
                async with agent.session(id="u", store=each):
                    pass
            with pytest.raises(UsageError, match="open elsewhere"):
                await each.delete("u")
        assert [(each.id, each.in_use) for each in await again.list()] == [("u", True)]
        await session.run("Hi.")
        async with agent.session(id="v", store=store):
            pass
    async with agent.session(id="u", store=again) as session:
        assert len(session.messages) == 2
    assert {(each.id, each.in_use) for each in await store.list()} == {("u", False), ("v", False)}


def test_a_session_that_an_ended_event_loop_left_open_goes_on_in_the_next(tmp_path: Path) -> None:
    agent = Agent(ScriptedEngine([say("A."), say("B.")]))

    async def leave() -> None:
        session = agent.session(id="u", store=tmp_path / "s")
        await session.run("Hi.")

    async def go_on() -> int:
        async with agent.session(id="u", store=tmp_path / "s") as session:
            return len((await session.run("Hi again.")).messages)

    asyncio.run(leave())
    assert asyncio.run(go_on()) == 4


async def test_pictures_are_rendered_again_and_what_comes_before_them_is_not() -> None:
    keeper = Keeper(SessionRecord())
    for number, has_media in enumerate((False, True)):
        keeper.told([{"role": "user", "content": "Hi."}] * (2 * number + 1))
        keeper.begin_run("m", begins=2 * number, fed=2 * number)
        keeper.begin(LoggedTurn([1, 2, 3], has_media=has_media))
        if not has_media:
            keeper.sampled([4])
        keeper.told([{"role": "user", "content": "Hi."}] * (2 * number + 2))
        keeper.end_run(End(2 * number + 2, False, Usage()))
    record = keeper.record.copy()
    assert record.last_whole("m") is None
    record.take("rewound", Rewound(2, 1))
    whole = record.last_whole("m")
    assert whole is not None and record.last_whole("another") is None
    assert [turn.sampled for turn in record.turns_of(whole)] == [[4]]


async def test_a_turn_that_rewrites_the_context_is_kept_by_what_differs() -> None:
    keeper = Keeper(SessionRecord())
    keeper.told([{"role": "user", "content": "Hi."}])
    keeper.begin_run("m", begins=0, fed=0)
    keeper.begin(LoggedTurn([1, 2, 3], replaces=True))
    keeper.sampled([4, 5])
    keeper.begin(LoggedTurn([1, 2, 3, 4, 9, 9], replaces=True))
    keeper.sampled([7])
    saved = keeper.record.runs[0].turns[1]
    assert (saved.kept, list(saved.turn.appended)) == (4, [9, 9])
    assert keeper.record.context() == [1, 2, 3, 4, 9, 9, 7]
    again = keeper.record.copy()
    assert [list(turn.appended) for turn in again.turns_of(again.runs[0])] == [
        [1, 2, 3],
        [1, 2, 3, 4, 9, 9],
    ]


async def test_the_log_of_an_engine_on_another_event_loop_is_kept_in_order() -> None:
    keeper = Keeper(SessionRecord())
    keeper.told([{"role": "user", "content": "Hi."}])
    keeper.begin_run("m", begins=0, fed=0)
    log = keeper.fresh()

    async def decode() -> None:
        log.begin(LoggedTurn([1], replaces=True))
        for token in range(100):
            log.sampled([token])
        log.end(TurnOutcome("stop"))

    await asyncio.to_thread(asyncio.run, decode())
    await asyncio.sleep(0)
    (saved,) = keeper.record.runs[0].turns
    assert saved.turn.sampled == [*range(100)] and saved.turn.outcome == TurnOutcome("stop")


async def test_sessions_are_listed_and_deleted(store: Sessions) -> None:
    assert await store.list() == ()
    engine = ScriptedEngine([say("A."), say("B."), say("C.")])
    for name in ("a", "b"):
        async with Agent(engine).session(id=name, store=store) as session:
            await session.run("Hi.")
    listed = await store.list()
    assert [each.id for each in listed] == ["b", "a"]
    assert all(each.created <= each.saved for each in listed)
    await store.delete("a")
    await store.delete("a")
    assert [each.id for each in await store.list()] == ["b"]
    async with Agent(engine).session(id="a", store=store) as session:
        assert session.messages == ()
        await session.run("Hi.")
    await store.aclose()


class Full(SqliteJournal):
    """A store whose disk may be full."""

    is_full = False

    def append(self, *arguments: Any, **options: Any) -> frozenset[str]:
        if self.is_full:
            raise JournalUnavailable("database or disk is full")
        return super().append(*arguments, **options)


async def test_a_full_disk_is_said_and_ends_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("caesura.runtime.sdk.sessions.SqliteJournal", Full)
    monkeypatch.setattr("caesura.runtime.journal.writer.RECORD_SECONDS", 0.01)
    looked = []

    @tool(safe_to_repeat=True)
    def look() -> str:
        """Look."""
        looked.append(1)
        return "seen"

    script: list[Item] = [say("A."), calls(call("look"), call("double", n=1)), say("B."), say("C.")]
    agent = Agent(ScriptedEngine(script), [double, look])
    async with agent.session(id="u", store=tmp_path / "s") as session:
        await session.run("One.")
        assert session.trouble is None
        Full.is_full = True
        try:
            answer = await session.run("Two.")
        finally:
            Full.is_full = False
        # A call that must not be made twice is not made where nobody could know of it.
        assert [result.error for _, result in answer.calls] == [None, "failed"] and looked
        assert "could not be recorded" in answer.calls[1][1].content
        assert "disk is full" in str(session.trouble) and "disk is full" in caplog.text
        await session.run("Three.")
        assert session.trouble is None
        before = session.messages
    async with agent.session(id="u", store=tmp_path / "s") as session:
        assert session.messages == before


async def test_a_session_that_was_not_read_says_so(store: Sessions) -> None:
    session = Agent(ScriptedEngine([say("A.")])).session(id="u", store=store)
    for use in (lambda: session.messages, session.state, session.fork, session.rewind):
        with pytest.raises(UsageError, match="was not read from its store yet: use it in"):
            use()
    await session.run("Hi.")  # which reads it
    assert len(session.messages) == 2
    await session.aclose()
    assert len(session.messages) == 2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda agent: agent.session(id=""), "1 to 200 ASCII characters, got ''"),
        (lambda agent: agent.session(id=7), "got 7"),
        (lambda agent: agent.session(store=7), r"the store of a session is Sessions\(...\).*got 7"),
        (lambda agent: Sessions(""), "are kept in a file or a database, got ''"),
        (lambda agent: Sessions("redis://x"), "names no PostgreSQL database"),
        (lambda agent: agent.session(state="{}"), r"must be the text of `session.state\(\)`"),
        (lambda agent: agent.session(state="[1]"), r"must be the text of `session.state\(\)`"),
        (lambda agent: agent.session(state=7), r"must be the text of `session.state\(\)`"),
    ],
)
def test_what_is_no_session_is_refused_in_a_sentence(
    make: Callable[[Agent], object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        make(Agent(ScriptedEngine()))


async def test_a_file_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("These are notes, and no sessions. " * 40)
    SqliteJournal(tmp_path / "journal.sqlite").renew("a")
    for path in (file, tmp_path / "journal.sqlite", tmp_path):
        with pytest.raises(UsageError, match=r"sessions cannot be read: .*cannot be used"):
            async with Agent(ScriptedEngine()).session(id="u", store=path):
                pass
    assert file.read_text().startswith("These are notes")


async def test_a_second_history_is_refused(store: Sessions) -> None:
    agent = Agent(ScriptedEngine([say("A.")]))
    async with agent.session(id="u", store=store) as session:
        await session.run("Hi.")
        history, state = session.messages, session.state()
    for second in ({"messages": history}, {"state": state}):
        with pytest.raises(UsageError, match="with a history of its own"):
            async with agent.session(id="u", store=store, **second):
                pass
    async with agent.session(id="v", store=store, state=state) as session:
        assert session.messages == history
    async with agent.session(id="v", store=store) as session:
        assert session.messages == history


async def test_postgres_keeps_sessions_too(database: str) -> None:
    for number in range(2):
        agent = Agent(ScriptedEngine([say(f"{number}.")]))
        async with agent.session(id="u", store=database) as session:
            await session.run("Next.")
            assert len(session.messages) == 2 * number + 2
    sessions = Sessions(database)
    (listed,) = await sessions.list()
    assert listed.id == "u" and not listed.in_use and listed.created < listed.saved
    await sessions.delete("u")
    assert await sessions.list() == ()
    await sessions.aclose()


def test_an_engine_on_another_event_loop_keeps_them_alike(tmp_path: Path) -> None:
    class Elsewhere(ScriptedEngine):
        loop: asyncio.AbstractEventLoop

    async def started() -> Elsewhere:
        engine = Elsewhere(
            [calls(call("double", n=2), text="So:"), say("4"), say("Yes."), say("No.")]
        )
        engine.loop = asyncio.get_running_loop()
        return engine

    async def talk(agent: Agent) -> list[str]:
        async with agent.session(id="u", store=tmp_path / "s") as session:
            await session.run("Go on.")
            (branch,) = session.fork(1)
            kept = session.messages
            await branch.aclose()
        assert branch.messages == kept
        return [each["role"] for each in kept]

    with another_loop() as loop:
        engine = asyncio.run_coroutine_threadsafe(started(), loop).result(30)
        agent = Agent(engine, [double])
        first = ["user", "assistant", "tool", "assistant"]
        assert asyncio.run(talk(agent)) == first
        assert asyncio.run(talk(agent)) == [*first, "user", "assistant"]
    assert [len(turn) for turn in sent(engine)[1]] == [1, 1, 1]


async def test_a_run_that_another_model_went_on_with_is_rendered_again(store: Sessions) -> None:
    first = ScriptedEngine([call("double", n=2), fail(RequestFailed("lost"))], model="one")
    second = ScriptedEngine([say("4"), say("Yes.")], model="two")
    async with Agent([first, second], [double]).session(id="u", store=store) as session:
        assert (await session.run("Double 2.")).text == "4"
        before = session.messages
        assert (await session.run("Sure?")).text == "Yes."
    third = ScriptedEngine([say("Bye.")], model="one")
    async with third, Agent(third, [double]).session(id="u", store=store) as session:
        assert session.messages[: len(before)] == before
        await session.run("Bye.")
    assert [len(turn) for turn in sent(third)[0]] == [7]
