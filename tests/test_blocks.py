"""The code blocks of README and docs run, load or parse, each by what a reader would give it to."""

import ast
import asyncio
import inspect
import json
import re
import shlex
from collections.abc import AsyncIterator, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import openai
import pytest
import yaml
from opentelemetry.sdk.trace import TracerProvider

from caesura import Agent, Sampling, ScriptedEngine, tool
from caesura.planning.application.file import read_application
from caesura.runtime import launch
from caesura.runtime.cli.app import command
from caesura.runtime.sdk import engines
from caesura.runtime.server import ServerParts, create_app
from caesura.runtime.server.listen import listening
from caesura.runtime.testing import call, say
from caesura.runtime.trajectories.kept import KeptSessions, SessionBounds
from caesura.tools import Registry
from caesura.tools.calculator.tool import calculator
from caesura.tools.config.caesura_toml import Config
from caesura.tools.config.functions import FunctionSettings
from caesura.tools.config.toolset import BUILTINS

ROOT = Path(__file__).parent.parent
OTHERS = re.compile(r"<!-- begin setup -->.*?<!-- end setup -->", re.DOTALL)
"""The files and commands of other programs, copied from what ran with them."""
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
SECRETS = ("TICKETS_TOKEN", "SEARCH_KEY", "OPENAI_API_KEY")
MODELS = ("Qwen3-8B", "caesura-tiny")


class Block(NamedTuple):
    where: str
    language: str
    text: str


def blocks(*languages: str) -> list[Any]:
    return list(_blocks(languages))


def _blocks(languages: tuple[str, ...]) -> Iterator[Any]:
    for page in PAGES:
        text = OTHERS.sub(lambda part: "\n" * part[0].count("\n"), page.read_text())
        for found in BLOCK.finditer(text):
            where = f"{page.relative_to(ROOT)}:{text[: found.start()].count(chr(10)) + 1}"
            if found[1] in languages:
                yield pytest.param(Block(where, found[1], found[2]), id=where)


def lines(block: Block) -> Iterator[list[str]]:
    """Yield the words of each line of a shell, without variables, comments and redirections.

    In a line of syntax, what may be left out is there, and a letter stands for the number 1.
    """
    text = re.sub(r"'[^'\n]*\n[^']*'", "TEXT", block.text.replace("\\\n", " "))
    for line in text.splitlines():
        words = shlex.split(re.sub(r"\[(-.*?)\]", r"\1", line).partition(" > ")[0], comments=True)
        while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
            words.pop(0)
        if words:
            yield [re.sub(r"^[A-Z]$", "1", word) for word in words]


def test_the_blocks_are_found() -> None:
    counts = {name: len(blocks(name)) for name in ("python", "toml", "json", "yaml")}
    assert counts["python"] > 10 and counts["toml"] > 10, counts
    assert len(SHELLS) > 15


# -- Python --------------------------------------------------------------------------------------


@tool
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


@pytest.fixture
async def given(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[dict[str, Any]]:
    """What fragments take from the text around them. Engines follow a script."""
    asked = inspect.signature(launch.start_engine)

    async def start(*arguments: Any, **keywords: Any) -> ScriptedEngine:
        asked.bind(*arguments, **keywords)
        return scripted("scripted")

    monkeypatch.setattr(launch, "start_engine", start)
    monkeypatch.setattr(engines.ENGINES, "_launch", start)
    yield {
        "Agent": Agent,
        "Sampling": Sampling,
        "ServerParts": ServerParts,
        "create_app": create_app,
        "engine": scripted("scripted"),
        "pay": pay,
        "provider": TracerProvider(),
        "tools": Registry([calculator]),
        "__name__": "__main__",
    }
    await engines.ENGINES.close_all()


def scripted(model: str) -> ScriptedEngine:
    return ScriptedEngine(
        lambda messages, tools: (
            say("Done.") if messages[-1]["role"] == "tool" else call("calculator", expression="1")
        ),
        model=model,
    )


@pytest.fixture
async def ports() -> AsyncIterator[dict[str, int]]:
    """A server of each model that the pages name, on a scripted engine."""
    kept = KeptSessions(SessionBounds(), one_owner=True)
    about = (Registry([calculator]), None, ServerParts(sessions=kept))
    apps = {name: create_app(scripted(name), *about) for name in MODELS}
    async with listening(apps[MODELS[0]]) as first, listening(apps[MODELS[1]]) as second:
        yield dict(zip(MODELS, (first, second), strict=True))


@pytest.mark.parametrize("block", blocks("python"))
async def test_python_runs(
    block: Block,
    given: dict[str, Any],
    ports: dict[str, int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    named = next((name for name in MODELS if f'"{name}"' in block.text), MODELS[0])
    url = f"http://127.0.0.1:{ports[named]}/v1"
    given["client"] = openai.OpenAI(base_url=url, api_key="none")
    text = block.text.replace("http://127.0.0.1:8000/v1", url)
    code = compile(text, block.where, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if "open_server" in text:  # a cluster's application, which tests/runtime/front runs
        return
    if code.co_flags & inspect.CO_COROUTINE:
        await eval(code, given)
    else:
        await asyncio.to_thread(exec, code, given)


def test_whole_programs_have_a_main_guard() -> None:
    """A program that starts an event loop is run again where its file is imported again."""
    for block in blocks("python"):
        text = block.values[0].text
        if re.search(r"^(asyncio\.run\(|\S.*\.run_sync\()", text, re.MULTILINE):
            pytest.fail(f'{block.id}: put the call under `if __name__ == "__main__":`')


# -- Files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", blocks("toml"))
def test_toml_loads(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SECRETS:
        monkeypatch.setenv(name, "secret")
    (tmp_path / "mcp.json").write_text('{"mcpServers": {}}')
    if "[application]" in block.text:
        for name in ("small", "large"):
            (tmp_path / "models" / name).mkdir(parents=True)
        (tmp_path / "questions.jsonl").write_text('{"question": "Why?"}\n')
        (tmp_path / "app.toml").write_text(block.text)
        assert read_application(tmp_path / "app.toml").tasks
        return
    (tmp_path / "caesura.toml").write_text(block.text)
    config = Config.load(tmp_path / "caesura.toml")
    for name, table in config.tools.items():  # what they need, such as weights, may be missing
        own = BUILTINS.get(name)
        kind = FunctionSettings if own is None else import_module(own.module).Settings
        kind.model_validate(table)


@pytest.mark.parametrize("block", blocks("json", "yaml"))
def test_data_can_be_read(block: Block) -> None:
    assert json.loads(block.text) if block.language == "json" else yaml.safe_load(block.text)


# -- Shells --------------------------------------------------------------------------------------


COMMANDS = re.compile(r"^(\S+=\S+ )?(caesura|make|python|pip|vllm) ", re.MULTILINE)
"""A block without a language is of commands, or shows what something prints."""
SHELLS = [each for each in blocks("", "sh", "bash") if COMMANDS.search(each.values[0].text)]


@pytest.mark.parametrize("block", SHELLS)
def test_commands_are_taken(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    makefile = (ROOT / "Makefile").read_text()
    for words in lines(block):
        match words:
            case ["caesura", name, *rest]:
                found = command(name)
                if hasattr(found, "commands"):
                    found, rest = found.commands[rest[0]], rest[1:]
                for word in rest:
                    if re.fullmatch(r"1|.*\.(toml|jsonl|json|txt)", word):
                        Path(word).touch()
                found.make_context(name, rest)
            case ["make", target, *_]:
                assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
            case ["python", "-m", module, *_]:
                assert find_spec(module) is not None, module
            case ["python", file, *_]:
                assert (ROOT / file).is_file(), file
