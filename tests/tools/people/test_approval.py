"""Calls that a person approves: no approval, no run."""

import asyncio
from typing import Any

import pytest

from caesura.tools.people import (
    BadAnswer,
    Pending,
    People,
    PeopleSettings,
    person_deadline,
    with_approval,
)
from caesura.tools.registry import Registry
from caesura.tools.tool import tool


class Sending:
    """A tool with a side effect, and what it has done."""

    def __init__(self, **options: Any) -> None:
        self.sent: list[str] = []
        self.failures = 0
        self.seconds = 0.0
        self.running = self.most = 0

        @tool(approval=True, **options)
        async def send(text: str) -> str:
            """Send a text."""
            self.running += 1
            self.most = max(self.most, self.running)
            try:
                await asyncio.sleep(self.seconds)
            finally:
                self.running -= 1
            if self.failures:
                self.failures -= 1
                raise RuntimeError("the line is busy")
            self.sent.append(text)
            return f"sent {text}"

        self.tool = send


async def decided(people: People, approve: bool, reason: str = "") -> Pending:
    return await people.decide(people.waited_for[-1].id, approve, reason)


async def test_it_runs_after_the_approval_and_not_before(asking: Any) -> None:
    people, sending = asking.people(), Sending()
    task = asking.call(asking.session(with_approval(sending.tool, people)), "send", text="hello")
    item = await asking.opened(people)
    assert (item.kind, item.tool, item.arguments) == ("approval", "send", '{"text": "hello"}')
    assert sending.sent == []
    await decided(people, True)
    assert (await task).content == "sent hello"
    assert sending.sent == ["hello"]


async def test_a_denial_is_an_error_for_the_model(asking: Any) -> None:
    people, sending = asking.people(), Sending()
    session = asking.session(with_approval(sending.tool, people))
    for reason, said in (("not today", ": not today"), ("", "")):
        task = asking.call(session, "send", text="hello")
        await asking.opened(people)
        await decided(people, False, reason)
        result = await task
        assert result.error == "failed"
        assert result.content == f"error: a person denied this call of send{said}"
    assert sending.sent == []


async def test_a_call_without_approval_in_time_is_not_run(asking: Any) -> None:
    settings = PeopleSettings.model_validate({"approval_deadline_seconds": 0.05})
    people, sending = asking.people(settings), Sending()
    result = await asking.call(
        asking.session(with_approval(sending.tool, people)), "send", text="hello"
    )
    assert result.content == "error: no person approved this call of send in 0.05 seconds"
    assert sending.sent == []
    (item,) = await people.listed(("expired",))
    assert item.approved is None


async def test_the_time_out_covers_the_run_and_not_the_wait(asking: Any) -> None:
    people, sending = asking.people(), Sending(timeout_seconds=0.4)
    session = asking.session(with_approval(sending.tool, people))
    task = asking.call(session, "send", text="hello")
    await asking.opened(people)
    await asyncio.sleep(0.6)
    await decided(people, True)
    assert (await task).content == "sent hello"
    sending.seconds = 3600
    task = asking.call(session, "send", text="again")
    await asking.opened(people)
    await decided(people, True)
    result = await task
    assert result.content == "error: no answer within 0.4 seconds"
    assert result.error == "timeout"
    assert sending.running == 0


async def test_the_wait_takes_no_slot_and_the_run_does(asking: Any) -> None:
    people, sending = asking.people(), Sending(concurrency=1)
    session = asking.session(with_approval(sending.tool, people))
    sending.seconds = 0.01
    tasks = [asking.call(session, "send", text=str(number)) for number in range(4)]
    await asking.opened(people, 4)
    for item in people.waited_for:
        await people.decide(item.id, True)
    await asyncio.gather(*tasks)
    assert len(sending.sent) == 4
    assert sending.most == 1


async def test_a_retry_is_the_same_call_and_not_asked_about_again(asking: Any) -> None:
    asked: list[Pending] = []

    def approve(item: Pending) -> bool:
        asked.append(item)
        return True

    people = asking.people(on_approval=approve)
    sending = Sending(retries=2, safe_to_repeat=True)
    session = asking.session(with_approval(sending.tool, people))
    sending.failures = 2
    result = await asking.call(session, "send", text="a")
    assert (result.content, result.attempts, len(asked)) == ("sent a", 3, 1)
    await asking.call(session, "send", text="a")
    assert len(asked) == 2, "another call is another approval"


async def test_a_denial_is_not_retried_and_no_failure_of_the_tool(asking: Any) -> None:
    people = asking.people(on_approval=lambda item: "no")
    sending = Sending(retries=3, safe_to_repeat=True, breaker=1)
    session = asking.session(with_approval(sending.tool, people))
    for _ in range(3):
        result = await asking.call(session, "send", text="a")
        assert (result.content, result.attempts) == (
            "error: a person denied this call of send: no",
            1,
        )


@pytest.mark.parametrize(
    ("said", "runs"), [(True, 1), (False, 0), ("too costly", 0), ("True", 0), ("", 0)]
)
async def test_a_callback_decides(asking: Any, said: bool | str, runs: int) -> None:
    people = asking.people(on_approval=lambda item: said)
    sending = Sending()
    result = await asking.call(
        asking.session(with_approval(sending.tool, people)), "send", text="a"
    )
    assert len(sending.sent) == runs
    assert (result.error is None) == bool(runs)
    assert isinstance(said, bool) or said in result.content


async def test_an_approval_is_for_one_call(asking: Any) -> None:
    """Two runs that make the same call in the same conversation: two calls, two approvals."""
    people, sending = asking.people(), Sending()
    tool_ = with_approval(sending.tool, people)
    sessions = [asking.session(tool_, conversation="same", name=name) for name in ("a", "b")]
    tasks = [asking.call(session, "send", text="x") for session in sessions]
    await asking.opened(people, 2)
    await decided(people, True)
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    assert sending.sent == ["x"]
    assert len(people.waited_for) == 1
    again = asking.call(sessions[0], "send", text="x")
    await asking.opened(people, 2)
    assert sending.sent == ["x"]
    for item in people.waited_for:
        await people.decide(item.id, False)
    await asyncio.gather(*tasks, again)
    assert sending.sent == ["x"]


async def test_arguments_that_cannot_be_shown_are_not_approved(asking: Any) -> None:
    people, sending = asking.people(on_approval=lambda item: True), Sending()
    result = await asking.call(
        asking.session(with_approval(sending.tool, people)), "send", text="x" * 20_000
    )
    assert "at most 16000 can be shown" in result.content
    assert sending.sent == []


async def test_an_approval_is_not_answered_with_a_text(asking: Any) -> None:
    people, sending = asking.people(), Sending()
    asking.call(asking.session(with_approval(sending.tool, people)), "send", text="x")
    item = await asking.opened(people)
    with pytest.raises(BadAnswer, match="approve or deny"):
        await people.answer(item.id, "yes")


async def test_cancelled_while_it_waits_it_never_runs(asking: Any) -> None:
    people, sending = asking.people(), Sending()
    session = asking.session(with_approval(sending.tool, people))
    asking.call(session, "send", text="x")
    item = await asking.opened(people)
    await session.aclose()
    assert (await people.get(item.id)).state == "cancelled"
    assert sending.sent == []


def test_wrapping_twice_is_wrapping_once_and_the_rest_of_the_tool_stays() -> None:
    people, sending = People(), Sending(timeout_seconds=20, expected_seconds=5)
    wrapped = with_approval(sending.tool, people)
    assert with_approval(wrapped, people) is wrapped
    assert wrapped.approval
    assert wrapped.spec() == sending.tool.spec()
    assert wrapped.expected_seconds == 65
    assert person_deadline(wrapped) == 3620
    assert person_deadline(sending.tool) is None
    Registry([wrapped])


async def test_an_approved_call_whose_run_has_ended_meanwhile_does_not_run(asking: Any) -> None:
    people, sending = asking.people(), Sending()

    async def gone() -> None:
        raise RuntimeError("the engine has failed")

    session = asking.session(with_approval(sending.tool, people), usable=gone)
    task = asking.call(session, "send", text="hello")
    await asking.opened(people)
    await decided(people, True)
    assert (await task).content == "error: the engine has failed"
    assert sending.sent == []
