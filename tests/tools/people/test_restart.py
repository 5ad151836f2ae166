"""Questions that outlive the process that asked them."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from caesura.stores.leases import is_alive, new_owner
from caesura.tools.people import NotPending, make_ask_user, with_approval
from caesura.tools.people.pending import Pending
from caesura.tools.people.store import Store
from caesura.tools.tool import tool
from tests.tools.people.asking import SAID

CHILD = """
import asyncio, sys
from pathlib import Path
from caesura.tools.context import Scope, ToolRun
from caesura.tools.dispatcher import Dispatcher
from caesura.tools.people import People, make_ask_user
from caesura.tools.registry import Registry
from caesura.tools.result import ToolCall

async def main():
    people = People(Path(sys.argv[1]))
    run = ToolRun(Scope("of the dead"), "digest of what was said")
    session = Dispatcher(Registry([make_ask_user(people)]), run)
    asking = session.start(ToolCall("c", "ask_user", sys.argv[2]))
    while not people.waited_for and not asking.done():
        await asyncio.sleep(0.005)
    if sys.argv[3:]:
        await people.answer(people.waited_for[0].id, sys.argv[3])
        await asking
    print("asked", flush=True)
    await asyncio.sleep(3600)

asyncio.run(main())
"""


async def asked_and_killed(path: Path, question: str, *answer: str) -> None:
    """A process asks, perhaps gets an answer, and dies on the spot."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", CHILD, str(path), f'{{"question": "{question}"}}', *answer),
        stdout=asyncio.subprocess.PIPE,
    )
    assert child.stdout is not None
    try:
        assert await child.stdout.readline() == b"asked\n"
    finally:
        os.kill(child.pid, signal.SIGKILL)
        await child.wait()


async def test_a_killed_process_leaves_a_question_that_is_found_and_answered(asking: Any) -> None:
    await asked_and_killed(asking.path, "Which city?")
    people = asking.people()
    await people.start()
    (item,) = await people.listed()
    assert (item.state, item.question, item.session) == ("orphaned", "Which city?", "of the dead")
    await people.answer(item.id, "Oslo")
    session = asking.session(make_ask_user(people), conversation=SAID)
    result = await asking.call(session, "ask_user", question="Which city?")
    assert result.content == "Oslo"
    # The answer was for the run that was lost: another one asks again.
    other = asking.session(make_ask_user(people), conversation=SAID, name="other")
    asking.call(other, "ask_user", question="Which city?")
    assert (await asking.opened(people)).id != item.id


async def test_the_same_request_takes_its_question_up_again(asking: Any) -> None:
    await asked_and_killed(asking.path, "Which city?")
    people = asking.people()
    (orphan,) = await people.listed()
    tool_ = make_ask_user(people)
    session = asking.session(tool_, conversation=SAID, name="again")
    task = asking.call(session, "ask_user", question="Which city?")
    item = await asking.opened(people)
    assert (item.id, item.state, item.session) == (orphan.id, "open", "again")
    assert item.deadline > orphan.deadline
    assert len(await people.listed()) == 1
    await people.answer(item.id, "Rome")
    assert (await task).content == "Rome"


@pytest.mark.parametrize(
    ("conversation", "question"), [("another", "Which city?"), (SAID, "Which town?"), ("", "")]
)
async def test_another_conversation_or_question_is_another(
    asking: Any, conversation: str, question: str
) -> None:
    people = asking.people()
    first = asking.session(make_ask_user(people), conversation=SAID if question else "")
    task = asking.call(first, "ask_user", question="Which city?")
    item = await asking.opened(people)
    second = asking.session(make_ask_user(people), conversation=conversation)
    asking.call(second, "ask_user", question=question or "Which city?")
    await asking.opened(people, 2)
    await people.answer(item.id, "Oslo")
    assert (await task).content == "Oslo"
    assert len(people.waited_for) == 1


async def test_two_runs_of_one_request_wait_for_one_answer(asking: Any) -> None:
    people = asking.people()
    sessions = [
        asking.session(make_ask_user(people), conversation=SAID, name=name) for name in "abc"
    ]
    tasks = [asking.call(each, "ask_user", question="Q?") for each in sessions]
    item = await asking.opened(people)
    await asyncio.sleep(0.05)
    assert len(people.waited_for) == 1
    await sessions[0].aclose()  # one of them gives up
    assert (await people.get(item.id)).state == "open"
    await people.answer(item.id, "yes")
    assert [(await task).content for task in tasks[1:]] == ["yes", "yes"]


async def test_an_answer_that_died_with_its_run_is_found_again(asking: Any) -> None:
    await asked_and_killed(asking.path, "Which city?", "Oslo")
    people = asking.people()
    session = asking.session(make_ask_user(people), conversation=SAID)
    assert (await asking.call(session, "ask_user", question="Which city?")).content == "Oslo"
    assert await people.listed() == []


async def test_a_session_that_has_ended_leaves_no_answers_behind(asking: Any) -> None:
    """The same first message twice is two conversations, and the second is asked too."""
    people = asking.people(on_question=lambda item: "once")
    async with asking.session(make_ask_user(people), conversation=SAID) as session:
        assert (await asking.call(session, "ask_user", question="Q?")).content == "once"
    await people.aclose()
    later = asking.people(on_question=lambda item: "twice")
    session = asking.session(make_ask_user(later), conversation=SAID)
    assert (await asking.call(session, "ask_user", question="Q?")).content == "twice"


async def test_an_answer_that_was_found_is_used_up_by_a_session_that_ends(asking: Any) -> None:
    await asked_and_killed(asking.path, "Which city?", "Oslo")
    people = asking.people()
    async with asking.session(make_ask_user(people), conversation=SAID) as session:
        assert (await asking.call(session, "ask_user", question="Which city?")).content == "Oslo"
    await people.leave()
    await people.aclose()
    later = asking.people(on_question=lambda item: "asked again")
    session = asking.session(make_ask_user(later), conversation=SAID)
    assert (await asking.call(session, "ask_user", question="Which city?")).content == "asked again"


class Paying:
    """A tool that needs an approval, and a process that ends while a call of it waits."""

    def __init__(self, asking: Any) -> None:
        self.asking = asking
        self.paid: list[int] = []

        @tool(approval=True)
        async def pay(amount: int) -> str:
            """Pay."""
            self.paid.append(amount)
            return "paid"

        self.tool = pay

    def call(self, people: Any, asker: str, name: str) -> asyncio.Task[Any]:
        session = self.asking.session(
            with_approval(self.tool, people), conversation=SAID, name=name, asker=asker
        )
        task: asyncio.Task[Any] = self.asking.call(session, "pay", amount=5)
        return task

    async def interrupted(self, asker: str) -> str:
        """The id of the item that the ended process has left."""
        people = self.asking.people()
        task = self.call(people, asker, "before")
        item = await self.asking.opened(people)
        await people.leave()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await people.aclose()
        assert self.paid == []
        return str(item.id)


@pytest.fixture
def paying(asking: Any) -> Paying:
    return Paying(asking)


async def test_an_approval_is_never_used_twice(asking: Any, paying: Paying) -> None:
    """Given to a run that was lost it holds for the next one; given and used it does not."""
    item_id = await paying.interrupted("eva")
    people = asking.people()
    assert (await people.get(item_id)).state == "orphaned"
    await people.decide(item_id, True)
    assert (await paying.call(people, "eva", "b")).content == "paid"
    paying.call(people, "eva", "c")
    await asking.opened(people)
    assert paying.paid == [5]


@pytest.mark.parametrize("other", ["tom", ""])
@pytest.mark.parametrize("approved_first", [True, False])
async def test_an_approval_is_not_given_to_another_asker_of_the_same_words(
    asking: Any, paying: Paying, other: str, approved_first: bool
) -> None:
    item_id = await paying.interrupted("eva")
    people = asking.people()
    if approved_first:
        await people.decide(item_id, True)
    thief = paying.call(people, other, "thief")
    asked = await asking.opened(people)
    assert asked.id != item_id
    if not approved_first:
        await people.decide(item_id, True)
    await people.decide(asked.id, False)
    assert (await thief).error == "failed"
    assert paying.paid == []
    assert (await paying.call(people, "eva", "again")).content == "paid"


async def test_an_approval_of_an_unknown_asker_ends_with_its_run(
    asking: Any, paying: Paying
) -> None:
    item_id = await paying.interrupted("")
    people = asking.people()
    assert await people.listed() == []
    with pytest.raises(NotPending, match="already cancelled"):
        await people.decide(item_id, True)
    paying.call(people, "", "again")
    assert (await asking.opened(people)).id != item_id
    assert paying.paid == []


async def test_a_question_of_one_asker_is_not_answered_to_another(asking: Any) -> None:
    people = asking.people()
    tool_ = make_ask_user(people)
    sessions = [
        asking.session(tool_, conversation=SAID, name=name, asker=asker)
        for name, asker in (("a", "eva"), ("b", "tom"), ("c", "eva"))
    ]
    tasks = [asking.call(each, "ask_user", question="Q?") for each in sessions]
    await asking.opened(people, 2)
    answers = {item.session: item.id for item in people.waited_for}
    assert set(answers) == {"a", "b"}
    await people.answer(answers["a"], "for eva")
    await people.answer(answers["b"], "for tom")
    assert [(await task).content for task in tasks] == ["for eva", "for tom", "for eva"]


async def test_an_orderly_end_leaves_questions_open_for_the_next_process(asking: Any) -> None:
    people = asking.people()
    session = asking.session(make_ask_user(people), conversation=SAID)
    task = asking.call(session, "ask_user", question="Q?")
    item = await asking.opened(people)
    await people.leave()
    await session.cancel()
    assert (await task).error == "cancelled"
    await people.aclose()
    later = asking.people()
    assert [(each.id, each.state) for each in await later.listed()] == [(item.id, "orphaned")]


async def test_what_still_waits_fails_when_all_is_put_away(asking: Any) -> None:
    people = asking.people()
    task = asking.call(asking.session(make_ask_user(people)), "ask_user", question="Q?")
    await asking.opened(people)
    await people.aclose()
    assert "are closed" in (await task).content


async def test_deadlines_go_on_over_a_restart(asking: Any) -> None:
    now = 1000.0
    people = asking.people(clock=lambda: now)
    session = asking.session(make_ask_user(people), conversation=SAID)
    asking.call(session, "ask_user", question="Q?")
    item = await asking.opened(people)
    await people.leave()
    await session.aclose()
    now = item.deadline - 0.05
    later = asking.people(clock=lambda: now)
    seen = []
    async with later.watch() as items:
        seen.append(await anext(items))
        now = item.deadline
        seen.append(await anext(items))  # by the timer alone
    assert [each.state for each in seen] == ["orphaned", "expired"]
    with pytest.raises(NotPending, match="already expired"):
        await later.answer(item.id, "late")


async def test_a_question_of_another_living_process_is_answered_anywhere(asking: Any) -> None:
    people, other = asking.people(), asking.people()
    task = asking.call(asking.session(make_ask_user(people)), "ask_user", question="Q?")
    item = await asking.opened(people)
    assert [(each.id, each.state) for each in await other.listed()] == [(item.id, "open")]
    await other.answer(item.id, "from afar")
    assert (await task).content == "from afar"
    with pytest.raises(NotPending, match="already answered"):
        await people.answer(item.id, "from here")


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes owners of other containers: nothing of them is in our process table."""

    def store(path: Path) -> Store:
        made = Store(path)
        made.owner = made.owner.partition("@")[0].replace(str(os.getpid()), "1") + "@elsewhere"
        return made

    return store


def test_a_process_in_another_container_is_not_taken_for_dead(asking: Any, elsewhere: Any) -> None:
    there, here = elsewhere(asking.path), Store(asking.path)
    there.renew(now=1000.0)
    there.claim(item_of("a"), "identity")
    assert here.sweep(1010.0, 0.0) == []
    assert [each.state for each in here.listed(("open", "orphaned"))] == ["open"]
    there.renew(now=1020.0)
    assert here.sweep(1045.0, 0.0) == [], "its lease was renewed"
    (gone,) = here.sweep(1051.0, 0.0)
    assert gone.state == "orphaned"


def test_an_approval_given_elsewhere_is_used_by_its_own_run_alone(
    asking: Any, elsewhere: Any
) -> None:
    there, here = elsewhere(asking.path), Store(asking.path)
    there.renew(now=1000.0)
    there.claim(item_of("a", kind="approval"), "identity")
    assert here.settle("a", "answered", approved=True) is not None
    again = here.claim(item_of("b", kind="approval"), "identity")
    assert (again.id, again.state) == ("b", "open"), "another run needs an approval of its own"
    (said,) = there.news(["a"])
    assert (said.id, said.approved) == ("a", True)
    assert here.settle("a", "answered", approved=False) is None


def test_an_approval_that_its_run_never_read_serves_the_run_that_asks_again(
    asking: Any, elsewhere: Any
) -> None:
    there, here = elsewhere(asking.path), Store(asking.path)
    there.renew(now=1000.0)
    there.claim(item_of("a", kind="approval"), "identity")
    here.settle("a", "answered", approved=True)
    here.sweep(1060.0, 0.0)  # the other container is gone
    found = here.claim(item_of("b", kind="approval"), "identity")
    assert (found.id, found.approved) == ("a", True)


def test_an_item_that_was_orphaned_by_mistake_is_ours_again(asking: Any, elsewhere: Any) -> None:
    there, here = elsewhere(asking.path), Store(asking.path)
    there.renew(now=1000.0)
    there.claim(item_of("a"), "identity")
    here.sweep(1060.0, 0.0)  # the other process was stopped for a minute, and goes on
    assert there.news(["a"]) == []
    assert [each.state for each in here.listed(("open", "orphaned"))] == ["open"]


def item_of(item_id: str, kind: Any = "question") -> Pending:
    facts = {"session": "s", "conversation": "c", "tool": "t", "question": "Q?", "arguments": ""}
    times: Any = {"created": 1000.0, "deadline": 9e9, "default": None, "options": ()}
    return Pending(id=item_id, kind=kind, **facts, **times)


def test_an_owner_lives_as_long_as_its_process() -> None:
    owner = new_owner()
    assert is_alive(owner)
    pid, started, number = owner.partition("@")[0].split("-")
    assert not is_alive(f"{pid}-{int(started) + 1}-{number}"), "a later process of the same id"
    assert not is_alive(f"999999999-{started}-1")
    assert not is_alive("nonsense")
