"""`caesura people` against a running server, and questions asked right in the terminal."""

import asyncio
import io
import json
import os
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TextIO

import pytest
from rich.console import Console
from typer.testing import CliRunner

from caesura.runtime.cli import pending
from caesura.runtime.cli.app import app as command_line
from caesura.runtime.cli.pending import line_of
from caesura.runtime.cli.terminal import Terminal
from caesura.runtime.sdk.agent import Agent
from caesura.runtime.server import create_app
from caesura.runtime.server.app import ServerParts
from caesura.runtime.server.keys.key import Key
from caesura.runtime.server.keys.rules import Role
from caesura.runtime.server.listen import listening
from caesura.runtime.server.load.options import ServerOptions
from caesura.runtime.testing import ScriptedEngine, call, say
from caesura.tools.people import Pending, People
from caesura.tools.registry import Registry
from tests.kit.waiting import until


class Office:
    """A served file of questions, and the command line beside it."""

    def __init__(self, people: People, url: str) -> None:
        self.people = people
        self.url = url
        self.key: tuple[str, ...] = ("--api-key", "secret")

    async def run(self, *arguments: str) -> tuple[int, str]:
        given = ["people", *arguments, "--url", self.url, *self.key]
        result = await asyncio.to_thread(CliRunner().invoke, command_line, given)
        assert "Traceback" not in result.output
        return result.exit_code, result.output

    async def asked(self, question: str) -> tuple[str, asyncio.Task[str]]:
        before = len(self.people.waited_for)
        task = asyncio.create_task(self.people.ask(question, ["a", "b"], deadline_seconds=60))
        await until(lambda: len(self.people.waited_for) > before)
        return self.people.waited_for[-1].id, task


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[Office]:
    people = People(tmp_path / "people.sqlite")
    served = create_app(
        ScriptedEngine([]), Registry(), ServerOptions(api_key="secret"), ServerParts(people=people)
    )
    async with listening(served, shutdown_timeout=0.1) as port:
        yield Office(people, f"http://127.0.0.1:{port}/v1")
    await people.aclose()


async def test_ls_show_and_answer(office: Office) -> None:
    assert await office.run("ls") == (0, "nothing waits for a person\n")
    item_id, task = await office.asked("Which one?")
    code, output = await office.run("ls")
    assert code == 0
    assert output.startswith(f"{item_id}  Which one? (a | b)  [open, ")
    code, output = await office.run("show", item_id)
    assert "question: Which one?" in output
    assert "state: open" in output
    assert "approved" not in output
    assert "options: a | b" in output
    created = datetime.fromisoformat(output.partition("created: ")[2].splitlines()[0])
    assert abs(datetime.now(created.tzinfo) - created) < timedelta(minutes=10)
    code, output = await office.run("answer", item_id, "b", "--who", "Eva")
    assert (code, output) == (0, f"{item_id}  Which one? (a | b)  [answered: b]\n")
    assert await task == "b"
    assert (await office.people.get(item_id)).who == "Eva"
    assert await office.run("ls") == (0, "nothing waits for a person\n")
    code, output = await office.run("ls", "--all", "--json")
    assert [each["id"] for each in json.loads(output)] == [item_id]


async def test_approve_and_deny(office: Office) -> None:
    calls = []
    for _ in range(2):
        before = len(office.people.waited_for)
        calls.append(
            asyncio.create_task(office.people.approve("pay", {"euro": 5}, deadline_seconds=60))
        )
        await until(lambda before=before: len(office.people.waited_for) > before)
    first, second = office.people.waited_for
    code, output = await office.run("approve", first.id)
    assert (code, output) == (0, f'{first.id}  pay {{"euro": 5}}  [approved]\n')
    code, output = await office.run("deny", second.id, "--reason", "too much")
    assert (code, output) == (0, f'{second.id}  pay {{"euro": 5}}  [denied: too much]\n')
    ended = await asyncio.gather(*calls, return_exceptions=True)
    assert ended[0] is None
    assert str(ended[1]) == "a person denied this call of pay: too much"


async def test_a_clients_key_sees_nothing_of_others(tmp_path: Path) -> None:
    people = People()
    keys = [Key("bob-secret"), Key("amy-secret", "amy", role=Role.APPROVE)]
    served = create_app(
        ScriptedEngine([]), Registry(), ServerOptions(api_key=keys), ServerParts(people=people)
    )
    async with listening(served, shutdown_timeout=0.1) as port:
        office = Office(people, f"http://127.0.0.1:{port}")
        asking = asyncio.create_task(people.approve("pay", {"euro": 5}, deadline_seconds=60))
        await until(lambda: people.waited_for)
        item = people.waited_for[0].id
        office.key = ("--api-key", "bob-secret")
        assert await office.run("ls") == (0, "nothing waits for a person\n")
        assert "There is no pending item" in (await office.run("approve", item))[1]
        office.key = ("--api-key", "amy-secret")
        assert (await office.run("approve", item))[0] == 0
        await asking
        assert (await people.get(item)).who == "amy"
    await people.aclose()


async def test_mistakes_are_a_line_and_an_exit_code(office: Office) -> None:
    item_id, task = await office.asked("Which one?")
    assert (await office.run("approve", item_id))[0] == 1
    assert "There is no pending item 'none'" in (await office.run("show", "none"))[1]
    await office.run("answer", item_id, "a")
    assert await office.run("answer", item_id, "b") == (
        1,
        "error: This item is already answered.\n",
    )
    assert await task == "a"
    office.key = ()
    assert "API key" in (await office.run("ls"))[1]
    office.url = "http://127.0.0.1:9"
    code, output = await office.run("ls")
    assert code == 1
    assert "no server answers at http://127.0.0.1:9 (Connection refused): start one" in output
    office.url = "not a url"
    code, output = await office.run("ls")
    assert code == 1
    assert "(it is not an address such as http://127.0.0.1:8000)" in output


async def test_watch_shows_what_happens_until_the_server_ends(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(pending, "console", Console(file=shown, width=120))
    first, task = await office.asked("Which one?")
    watching = asyncio.create_task(office.run("watch"))
    await until(lambda: "open" in shown.getvalue())
    await office.people.answer(first, "a")
    await office.people.leave()
    assert await watching == (0, "")
    lines = shown.getvalue().splitlines()
    assert [line.partition("  [")[2].partition(",")[0] for line in lines] == [
        "open",
        "answered: a]",
    ]
    assert await task == "a"


async def test_a_line_cannot_steer_the_terminal() -> None:
    people = People()
    task = asyncio.create_task(people.ask("\x1b[2Jwipe\r\x07", ["\x1b]0;x"], deadline_seconds=60))
    await until(lambda: people.waited_for)
    line = line_of(people.waited_for[0], 0.0)
    assert line.isprintable()
    await people.aclose()
    with pytest.raises(RuntimeError):
        await task


# -- in the terminal ------------------------------------------------------------------------------


class Screen:
    """A terminal: what is shown on it, and somebody who types."""

    def __init__(self, stdin: TextIO, keyboard: int) -> None:
        self.file = io.StringIO()
        self.terminal = Terminal(Console(file=self.file, width=200), stdin)
        self._keyboard = keyboard

    @property
    def shown(self) -> str:
        return self.file.getvalue()

    def type(self, text: str) -> None:
        os.write(self._keyboard, text.encode())

    async def waits_for(self, text: str, count: int = 1) -> None:
        await until(lambda: self.shown.count(text) >= count)


@pytest.fixture
def screen() -> Iterator[Screen]:
    keyboard, slave = os.openpty()
    with os.fdopen(slave, "r") as stdin:
        yield Screen(stdin, keyboard)
    os.close(keyboard)


@pytest.mark.parametrize(
    ("typed", "answer"), [("2\n", "Rome"), ("\n \nParis\n", "Paris"), ("3\n", "3"), ("0\n", "0")]
)
async def test_a_question_is_asked_in_the_terminal(
    screen: Screen, typed: str, answer: str, configured: Callable[..., Any]
) -> None:
    engine = ScriptedEngine([call("ask_user", question="City?", options=["Oslo", "Rome"]), say("")])
    agent = configured(engine, ["ask_user"], on_question=screen.terminal.question)
    async with agent:
        task = asyncio.create_task(agent.run("Go."))
        await screen.waits_for("answer: ")
        assert "City?" in screen.shown
        assert "2  Rome" in screen.shown
        screen.type(typed)
        ((_, result),) = (await task).calls
        assert result.content == answer


@pytest.mark.parametrize(("typed", "said"), [("Y\n", True), ("no\n", False), ("later\n", "later")])
async def test_a_call_is_approved_in_the_terminal(
    screen: Screen, typed: str, said: bool | str
) -> None:
    people = People(on_approval=screen.terminal.approval)
    task = asyncio.create_task(people.approve("pay", {"euro": 5}, deadline_seconds=60))
    await screen.waits_for("the reason why not: ")
    assert "May pay be called?" in screen.shown
    assert '"euro": 5' in screen.shown
    screen.type(typed)
    if said is True:
        await task
    else:
        with pytest.raises(RuntimeError, match="denied" if said is False else "denied.*later"):
            await task
    await people.aclose()


async def test_questions_at_the_same_time_are_asked_one_after_the_other(screen: Screen) -> None:
    people = People(on_question=screen.terminal.question)
    tasks = [
        asyncio.create_task(people.ask(name, deadline_seconds=60)) for name in ("one?", "two?")
    ]
    await screen.waits_for("answer: ")
    screen.type("1st\n")
    await screen.waits_for("answer: ", 2)
    screen.type("2nd\n")
    assert await asyncio.gather(*tasks) == ["1st", "2nd"]
    await people.aclose()


async def test_an_answer_from_elsewhere_frees_the_terminal(screen: Screen) -> None:
    people = People(on_question=screen.terminal.question)
    task = asyncio.create_task(people.ask("one?", deadline_seconds=60))
    await screen.waits_for("answer: ")
    await people.answer(people.waited_for[0].id, "by another way")
    assert await task == "by another way"
    again = asyncio.create_task(people.ask("two?", deadline_seconds=60))
    await screen.waits_for("answer: ", 2)
    screen.type("typed\n")
    assert await again == "typed"
    await people.aclose()


async def test_nobody_at_the_terminal_is_an_error_at_once(screen: Screen) -> None:
    people = People(on_question=screen.terminal.question)
    task = asyncio.create_task(people.ask("one?", deadline_seconds=60))
    await screen.waits_for("answer: ")
    screen.type("\x04")  # Ctrl-D
    with pytest.raises(RuntimeError, match="the input has ended"):
        await task
    Terminal(Console(file=screen.file), io.StringIO()).answers_for(people)
    with pytest.raises(RuntimeError, match="not a terminal"):
        await people.ask("two?", deadline_seconds=60)
    await people.aclose()


async def test_what_is_shown_cannot_steer_the_terminal(screen: Screen) -> None:
    item = Pending.from_public(
        {
            **dict.fromkeys(("id", "session", "conversation", "arguments"), ""),
            "kind": "question",
            "tool": "t",
            "created": 0.0,
            "deadline": 1.0,
            "default": None,
            "question": "\x1b[2J[red]x[/red]",
            "options": ["\x1b]0;t\x07"],
        }
    )
    task = asyncio.create_task(screen.terminal.question(item))
    await screen.waits_for("answer: ")
    assert "\x1b" not in screen.shown
    assert "\x07" not in screen.shown
    assert "[red]x[/red]" in screen.shown
    screen.type("fine\n")
    assert await task == "fine"


@pytest.fixture
def configured(tmp_path: Path) -> Callable[..., Agent]:
    """Makes agents whose files are the test's own."""
    file = tmp_path / "caesura.toml"
    file.write_text(f'[data]\ndirectory = "{tmp_path}"\n')

    def make(*arguments: Any, **options: Any) -> Agent:
        return Agent(*arguments, config=file, **options)

    return make
