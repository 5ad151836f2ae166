"""Questions: how they are answered, and what happens when they are not."""

import asyncio
import threading
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from caesura.tools.people import (
    BadAnswer,
    NoSuchItem,
    NotPending,
    Pending,
    People,
    PeopleSettings,
    Settings,
    make_ask_user,
)
from caesura.tools.people.pending import MAX_ANSWER_CHARACTERS, MAX_QUESTION_CHARACTERS
from caesura.tools.services import SetupError
from tests.kit.waiting import until
from tests.tools.people.asking import SAID

LONG = MAX_QUESTION_CHARACTERS + 1


def settings(**fields: Any) -> Settings:
    return Settings.model_validate(fields)


async def test_the_answer_is_the_result(asking: Any) -> None:
    people = asking.people()
    session = asking.session(make_ask_user(people), name="s7")
    task = asking.call(session, "ask_user", question="Which city?", options=["Oslo", "Rome"])
    item = await asking.opened(people)
    assert (item.kind, item.question, item.session) == ("question", "Which city?", "s7")
    assert item.options == ("Oslo", "Rome")
    assert await people.listed() == [item]
    settled = await people.answer(item.id, "Bergen, please", "Eva")
    assert (settled.state, settled.answer, settled.who) == ("answered", "Bergen, please", "Eva")
    result = await task
    assert (result.content, result.error) == ("Bergen, please", None)
    assert await people.listed() == []
    assert people.waited_for == ()


def test_what_a_model_is_told_stays_as_it_is() -> None:
    tool = make_ask_user(People())
    assert tool.name == "ask_user"
    assert set(tool.parameters["properties"]) == {"question", "options"}
    assert tool.parameters["required"] == ["question"]
    assert tool.waits_for_person
    assert tool.timeout_seconds is not None
    assert tool.timeout_seconds > 3600


async def test_at_the_deadline_it_is_an_error(asking: Any) -> None:
    people = asking.people()
    tool = make_ask_user(people, settings(deadline_seconds=0.05))
    result = await asking.call(asking.session(tool), "ask_user", question="Anybody?")
    assert result.content == "error: no answer within 0.05 seconds"
    (item,) = await people.listed(("expired",))
    assert item.answer is None
    with pytest.raises(NotPending, match="already expired"):
        await people.answer(item.id, "late")


async def test_at_the_deadline_it_is_the_default_if_there_is_one(asking: Any) -> None:
    people = asking.people()
    tool = make_ask_user(people, settings(deadline_seconds=0.05, default="go on"))
    result = await asking.call(asking.session(tool), "ask_user", question="Anybody?")
    assert (result.content, result.error) == ("go on", None)


async def test_of_two_answers_at_once_the_first_counts(asking: Any) -> None:
    people = asking.people()
    task = asking.call(asking.session(make_ask_user(people)), "ask_user", question="Which?")
    item = await asking.opened(people)
    answers = [people.answer(item.id, text) for text in ("a", "b", "c", "d")]
    ended = await asyncio.gather(*answers, return_exceptions=True)
    taken = [each for each in ended if isinstance(each, Pending)]
    assert len(taken) == 1
    assert sum(isinstance(each, NotPending) for each in ended) == 3
    assert (await task).content == taken[0].answer


async def test_questions_at_the_same_time_get_each_its_own_answer(asking: Any) -> None:
    people = asking.people()
    session = asking.session(make_ask_user(people))
    tasks = [asking.call(session, "ask_user", question=f"{n}?") for n in range(8)]
    await asking.opened(people, 8)
    for item in people.waited_for[::-1]:
        await people.answer(item.id, f"answer to {item.question}")
    assert [(await task).content for task in tasks] == [f"answer to {n}?" for n in range(8)]


async def test_a_cancelled_run_takes_its_questions_with_it(asking: Any) -> None:
    people = asking.people()
    session = asking.session(make_ask_user(people))
    task = asking.call(session, "ask_user", question="Which?")
    item = await asking.opened(people)
    await session.cancel()
    assert (await task).error == "cancelled"
    assert (await people.get(item.id)).state == "cancelled"
    assert people.waited_for == ()
    with pytest.raises(NotPending, match="already cancelled"):
        await people.answer(item.id, "too late")


@pytest.mark.parametrize("steps", range(12))
async def test_cancelled_at_any_moment_nothing_stays_open(asking: Any, steps: int) -> None:
    people = asking.people()
    session = asking.session(make_ask_user(people), conversation="c")
    asking.call(session, "ask_user", question="Which?")
    for _ in range(steps):
        await asyncio.sleep(0.0005)
    await session.aclose()
    assert people.waited_for == ()
    assert await people.listed() == []


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"question": " "}, "the question is empty"),
        ({"question": "x" * LONG}, "4001 characters; at most 4000"),
        ({"question": "x", "options": ["a"] * 21}, "there are 21 options; at most 20"),
        ({"question": "x", "options": ["a" * 201]}, "an option has more than 200"),
    ],
)
async def test_questions_too_long_to_read_are_refused(
    asking: Any, arguments: dict[str, Any], reason: str
) -> None:
    people = asking.people()
    result = await asking.call(asking.session(make_ask_user(people)), "ask_user", **arguments)
    assert result.error == "failed"
    assert reason in result.content
    assert await people.listed() == []


async def test_no_more_are_asked_than_can_be_kept(asking: Any) -> None:
    people = asking.people(PeopleSettings.model_validate({"max_items": 2}))
    session = asking.session(make_ask_user(people))
    for name in ("one", "two"):
        asking.call(session, "ask_user", question=name)
    await asking.opened(people, 2)
    result = await asking.call(session, "ask_user", question="three")
    assert "too many questions" in result.content


async def test_one_client_leaves_room_for_the_questions_of_others(asking: Any) -> None:
    people = asking.people(PeopleSettings.model_validate({"max_items_per_key": 2}))
    ask_user = make_ask_user(people)
    greedy = asking.session(ask_user, conversation=SAID, tenant="greedy")
    other = asking.session(ask_user, name="other", tenant="other")
    for name in ("one", "two"):
        asking.call(greedy, "ask_user", question=name)
    first = await asking.opened(people, 2)
    again = asking.session(ask_user, conversation=SAID, name="again", tenant="greedy")
    repeated = asking.call(again, "ask_user", question=first.question)
    refused = await asking.call(again, "ask_user", question="three")
    assert "too many questions of this API key" in refused.content
    asking.call(other, "ask_user", question="four")
    await asking.opened(people, 3)
    await people.answer(first.id, "yes")
    assert (await repeated).content == "yes", "a question that is open already is no new one"
    asking.call(again, "ask_user", question="three")
    await asking.opened(people, 3)


async def test_clients_without_a_key_share_all_questions(asking: Any) -> None:
    people = asking.people(PeopleSettings.model_validate({"max_items_per_key": 1}))
    session = asking.session(make_ask_user(people))
    for name in ("one", "two"):
        asking.call(session, "ask_user", question=name)
    await asking.opened(people, 2)


@pytest.mark.parametrize("text", ["", "  \n", "x" * (MAX_ANSWER_CHARACTERS + 1)])
async def test_bad_answers_are_refused_and_the_question_stays(asking: Any, text: str) -> None:
    people = asking.people()
    task = asking.call(asking.session(make_ask_user(people)), "ask_user", question="Which?")
    item = await asking.opened(people)
    with pytest.raises(BadAnswer):
        await people.answer(item.id, text)
    with pytest.raises(BadAnswer):
        await people.decide(item.id, True)
    await people.answer(item.id, "good")
    assert (await task).content == "good"


@given(st.text(st.characters(codec=None), max_size=200), st.text(st.characters(codec=None)))
@example("?", "\ud800")
@example("\ud800", "yes")
def test_any_text_may_be_asked_and_answered(question: str, answer: str) -> None:
    async def ask() -> None:
        people = People(on_question=lambda item: answer)
        with pytest.raises(NoSuchItem):
            await people.answer(question, "yes")
        if not question.strip() or not answer.strip():
            return
        said = await people.ask(question, deadline_seconds=30)
        assert said == answer.encode("utf-8", "replace").decode()
        await people.aclose()

    asyncio.run(ask())


@pytest.mark.parametrize(
    "fields", [{"timeout_seconds": 10}, {"deadline_seconds": 60, "timeout_seconds": 60}]
)
def test_a_time_out_before_the_deadline_is_a_mistake(fields: dict[str, Any]) -> None:
    with pytest.raises(SetupError, match="timeout_seconds"):
        make_ask_user(People(), settings(**fields))
    with pytest.raises(SetupError, match="approval"):
        make_ask_user(People(), settings(approval=True))


async def test_callbacks_answer_in_the_loop_or_in_a_thread(asking: Any) -> None:
    threads: list[str] = []

    def plain(item: Pending) -> str:
        threads.append(threading.current_thread().name)
        return f"plain: {item.question}"

    async def asynchronous(item: Pending) -> str:
        threads.append(threading.current_thread().name)
        return f"async: {item.question}"

    for callback in (plain, asynchronous):
        people = asking.people(on_question=callback)
        result = await asking.call(asking.session(make_ask_user(people)), "ask_user", question="Q?")
        assert result.content == f"{'plain' if callback is plain else 'async'}: Q?"
    assert threads[0] != threading.main_thread().name
    assert threads[1] == threading.main_thread().name


async def test_a_callback_may_leave_it_to_others(asking: Any) -> None:
    people = asking.people(on_question=lambda item: None)
    task = asking.call(asking.session(make_ask_user(people)), "ask_user", question="Q?")
    await people.answer((await asking.opened(people)).id, "by another way")
    assert (await task).content == "by another way"


async def test_a_callback_that_fails_is_an_error_for_the_model(asking: Any) -> None:
    def broken(item: Pending) -> str:
        raise RuntimeError("standard input is closed")

    people = asking.people(on_question=broken)
    result = await asking.call(asking.session(make_ask_user(people)), "ask_user", question="Q?")
    assert result.content == "error: the question failed: standard input is closed"
    assert [item.state for item in await people.listed(("cancelled",))] == ["cancelled"]


@pytest.mark.parametrize("said", ["", "x" * (MAX_ANSWER_CHARACTERS + 1)])
async def test_a_callback_is_held_to_the_same_bounds(asking: Any, said: str) -> None:
    people = asking.people(on_question=lambda item: said)
    result = await asking.call(asking.session(make_ask_user(people)), "ask_user", question="Q?")
    assert result.error == "failed"
    assert "the question failed" in result.content


async def test_a_callback_is_broken_off_when_another_answers(asking: Any) -> None:
    cancelled = asyncio.Event()

    async def slow(item: Pending) -> str:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return "never"

    people = asking.people(on_question=slow)
    task = asking.call(asking.session(make_ask_user(people)), "ask_user", question="Q?")
    await people.answer((await asking.opened(people)).id, "faster")
    assert (await task).content == "faster"
    await until(cancelled.is_set)


async def test_a_watcher_sees_every_change(asking: Any) -> None:
    people = asking.people()
    session = asking.session(make_ask_user(people))
    first = asking.call(session, "ask_user", question="first")
    await asking.opened(people)
    seen: list[tuple[str, str]] = []
    async with people.watch() as items:
        second = asking.call(session, "ask_user", question="second")
        await people.answer((await asking.opened(people, 2)).id, "2")
        await people.answer(people.waited_for[0].id, "1")
        await asyncio.gather(first, second)
        async for item in items:
            seen.append((item.question, item.state))
            if len(seen) == 4:
                break
    assert seen == [
        ("first", "open"),
        ("second", "open"),
        ("second", "answered"),
        ("first", "answered"),
    ]


async def test_a_watcher_that_does_not_read_is_dropped(
    asking: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("caesura.tools.people.desk.MAX_BEHIND", 3)
    people = asking.people(on_question=lambda item: "yes")
    async with people.watch() as items:
        session = asking.session(make_ask_user(people))
        for number in range(4):
            await asking.call(session, "ask_user", question=f"{number}?")
        assert len([item async for item in items]) == 3


async def test_a_watcher_never_sees_an_old_state_after_a_new_one(asking: Any) -> None:
    """Whatever happens while the list is made that a watcher begins with."""
    people = asking.people()
    session = asking.session(make_ask_user(people))
    for number in range(20):
        task = asking.call(session, "ask_user", question=f"{number}?")
        item = await asking.opened(people)
        answering = asyncio.create_task(people.answer(item.id, "yes"))
        async with people.watch() as items:
            await asyncio.gather(answering, task)
            end = asking.call(session, "ask_user", question="end?")
            last = await asking.opened(people)
            states = []
            async for each in items:
                if each.id == last.id:
                    break
                states.append(each.state)
            assert states in (["open", "answered"], ["answered"], [])
        await people.answer(last.id, "yes")
        await end
