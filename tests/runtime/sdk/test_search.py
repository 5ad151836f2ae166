"""A search among branches: what is chosen, what is left open, and what an error does to it."""

import asyncio
from typing import Any

import pytest

from caesura import Agent, Limits, Sampling, ScriptedEngine, UsageError, tool
from caesura.runtime.testing import Item, calls, say
from caesura.runtime.testing import call as calling
from caesura.search import Candidate, best_of, majority, tree_search


class Numbered:
    """Say the next of some texts at each turn; the branch's number is the turn's."""

    def __init__(self, *texts: str) -> None:
        self.left = list(texts)

    def __call__(self, messages: Any, tools: Any) -> Item:
        return say(self.left.pop(0))


def length(made: Candidate[Any]) -> float:
    assert made.answer is not None
    return len(made.answer.text)


async def test_the_answer_with_the_highest_score_is_chosen_and_goes_on() -> None:
    engine = ScriptedEngine(Numbered("Hi.", "a", "ccc", "bb", "ddd", "More."))
    async with engine, Agent(engine).session() as session:
        await session.run("Hello!")
        before = session.messages
        async with await best_of(session, "Say much.", n=4, score=length) as best:
            assert (best.answer.text, best.score) == ("ccc", 3)  # the first of equals
            assert [each.score for each in best.candidates] == [1, 3, 2, 3]
            assert engine.open_sessions == 2  # the session's own, and the chosen one's
            assert session.messages == before
            assert (await best.session.run("And?")).text == "More."
            assert [each["content"] for each in best.session.messages[-3:]] == [
                "ccc",
                "And?",
                "More.",
            ]
        assert engine.open_sessions == 1


async def test_a_score_may_be_awaited_and_each_branch_has_another_seed() -> None:
    async def slow(made: Candidate[Any]) -> float:
        await asyncio.sleep(0)
        return -length(made)

    engine = ScriptedEngine(Numbered("aaa", "b", "cc"))
    async with engine, Agent(engine).session() as session:
        wanted = Sampling(seed=7, temperature=1.0)
        async with await best_of(session, "Go.", n=3, score=slow, sampling=wanted) as best:
            assert best.answer.text == "b"
    assert [each.samplings[-1].seed for each in engine.sessions] == [7, 8, 9]


async def test_a_branch_that_fails_is_told_and_the_others_go_on() -> None:
    def score(made: Candidate[Any]) -> float:
        return 1 / (length(made) - 2)

    engine = ScriptedEngine(Numbered("aaa", "bb", "cccc"))
    async with (
        engine,
        Agent(engine).session() as session,
        await best_of(session, "Go.", n=3, score=score) as best,
    ):
        assert best.answer.text == "aaa"
        assert [type(each.error) for each in best.candidates] == [
            type(None),
            ZeroDivisionError,
            type(None),
        ]
    assert not engine.open_sessions


async def test_if_all_fail_the_first_error_is_raised_and_nothing_stays_open() -> None:
    def score(made: Candidate[Any]) -> float:
        raise LookupError(f"no score for {made.answer}")

    engine = ScriptedEngine(Numbered("a", "b"))
    async with engine, Agent(engine).session() as session:
        with pytest.raises(LookupError, match="no score for a"):
            await best_of(session, "Go.", n=2, score=score, concurrency=1)
    assert not engine.open_sessions


async def test_the_answer_of_most_is_chosen() -> None:
    engine = ScriptedEngine(Numbered("84", "82", " 84", "85", "82", "84"))
    async with (
        engine,
        Agent(engine).session() as session,
        await majority(session, "12 * 7?", n=6, concurrency=1) as vote,
    ):
        assert (vote.answer.text, vote.score) == ("84", 0.5)
        assert vote.best is vote.candidates[0]
        assert [each.score for each in vote.candidates] == pytest.approx(
            [1 / 2, 1 / 3, 1 / 2, 1 / 6, 1 / 3, 1 / 2]
        )


async def test_a_majority_is_of_those_that_answered() -> None:
    @tool
    def wait() -> str:
        """Wait."""
        return "waited"

    def model(messages: Any, tools: Any) -> Item:
        return calls(calling("wait")) if model.left.pop() else say("yes")  # type: ignore[attr-defined]

    model.left = [False, True, False]  # type: ignore[attr-defined]
    engine = ScriptedEngine(model)
    agent = Agent(engine, [wait], limits=Limits(max_turns=1))
    async with (
        engine,
        agent.session() as session,
        await majority(session, "Well?", n=3, concurrency=1) as vote,
    ):
        assert (vote.answer.text, vote.score) == ("yes", 1.0)
        assert sum(each.error is not None for each in vote.candidates) == 1


async def test_a_tree_keeps_the_best_of_each_level_and_makes_no_call_again() -> None:
    made: list[int] = []

    @tool
    def add(n: int) -> int:
        """Add a number to what was added before."""
        made.append(n)
        return n

    def model(messages: Any, tools: Any) -> Item:
        if messages[-1]["role"] == "user":
            return calls(calling("add", n=engine_turns.pop(0)))
        total = sum(int(each["content"]) for each in messages if each["role"] == "tool")
        return say(str(total))

    engine_turns = [1, 5, 3, 2, 4, 9, 1]
    engine = ScriptedEngine(model)

    def total(candidate: Candidate[Any]) -> float:
        assert candidate.answer is not None
        return float(candidate.answer.text)

    def then(candidate: Candidate[Any]) -> str | None:
        return None if total(candidate) >= 12 else "Add another."

    async with engine, Agent(engine, [add]).session() as session:
        found = await tree_search(
            session, "Add.", score=total, then=then, width=2, keep=1, depth=3, concurrency=1
        )
        async with found:
            # 1 and 5; behind 5: 3 and 2, so 8 and 7; behind 8: 4 and 9, so 12 and 17.
            assert [total(each) for each in found.candidates] == [1, 5, 8, 7, 12, 17]
            assert found.answer.text == "17" and found.best.depth == 3
            assert [each.depth for each in found.candidates] == [1, 1, 2, 2, 3, 3]
            assert found.best.parent is found.candidates[2]
            assert engine.open_sessions == 1
    assert made == [1, 5, 3, 2, 4, 9] and not engine.open_sessions


async def test_a_leaf_of_an_early_level_may_be_the_best() -> None:
    engine = ScriptedEngine(Numbered("aaaaaa", "b", "cc", "d"))

    def then(candidate: Candidate[Any]) -> str | None:
        return None if length(candidate) > 5 else "Go on."

    async with engine, Agent(engine).session() as session:
        found = await tree_search(
            session, "Go.", score=length, then=then, width=2, keep=1, depth=2, concurrency=1
        )
        async with found:
            assert (found.answer.text, found.best.depth) == ("aaaaaa", 1)
            assert len(found.candidates) == 4


async def test_a_cancelled_search_leaves_nothing_open() -> None:
    begun = asyncio.Event()

    async def never(made: Candidate[Any]) -> float:
        begun.set()
        await asyncio.Event().wait()
        return 0.0

    engine = ScriptedEngine(Numbered("a", "b"))
    async with engine, Agent(engine).session() as session:
        search = asyncio.create_task(best_of(session, "Go.", n=2, score=never))
        await begun.wait()
        search.cancel()
        with pytest.raises(asyncio.CancelledError):
            await search
        assert not engine.open_sessions


@pytest.mark.parametrize(("name", "value"), [("n", 0), ("n", True), ("concurrency", 1.5)])
async def test_counts_that_are_none_are_refused(name: str, value: Any) -> None:
    engine = ScriptedEngine(Numbered("a"))
    given: Any = {"n": 2, "concurrency": 2, name: value}
    async with engine, Agent(engine).session() as session:
        with pytest.raises(
            UsageError, match=f"{name} must be a whole number from 1, got {value!r}"
        ):
            await best_of(session, "Go.", score=length, **given)
