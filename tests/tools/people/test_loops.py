"""Callbacks that would end the process, and people asked in one event loop after another."""

import asyncio
import sys
from pathlib import Path

from caesura.tools.people import Pending, People


async def test_a_callback_that_exits_ends_its_question_only(asking) -> None:
    def leave(item: Pending) -> str:
        sys.exit("enough")

    people = asking.people(on_question=leave)
    said = await asyncio.gather(people.ask("City?", deadline_seconds=60), return_exceptions=True)
    assert [str(each) for each in said] == ["the question failed: enough"]


def test_questions_at_the_same_time_in_a_second_event_loop(tmp_path: Path) -> None:
    people = People(tmp_path / "people.sqlite", on_question=lambda item: item.question.upper())

    async def ask() -> list[str]:
        try:
            questions = (people.ask(text, deadline_seconds=60) for text in ("a", "b", "c"))
            return list(await asyncio.gather(*questions))
        finally:
            await people.leave()

    assert [asyncio.run(ask()) for _ in range(2)] == [["A", "B", "C"]] * 2
    asyncio.run(people.aclose())
