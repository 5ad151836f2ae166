"""What `caesura serve` says when it starts."""

import os
import re
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner

from caesura.runtime.cli.app import app
from caesura.runtime.cli.errors import misplaced
from caesura.runtime.cli.options import ModelOptions
from caesura.runtime.cli.serve import kept_sessions, kv_lines, tools_line
from caesura.runtime.errors import UsageError
from caesura.runtime.server.load.gate import Machine
from caesura.scheduler.programs import Origin
from caesura.tools import tool
from caesura.tools.config.caesura_toml import Config
from caesura.tools.registry import Registry
from caesura.tools.services import SetupError


@tool(approval=True)
async def pay(euros: int) -> str:
    """Pay."""
    return str(euros)


@tool
async def look() -> str:
    """Look."""
    return "seen"


def test_the_tools_that_a_client_may_name_are_told():
    line = tools_line(Registry([pay, look]))
    assert line.endswith(": pay (after approval), look")
    assert tools_line(Registry()) == "no server tools"


def test_the_kv_cache_is_told():
    one, other = Machine(16, 12_345, 256), Machine(32, 64, 8)
    assert list(kv_lines([one])) == [
        "KV cache: 12,345 tokens in blocks of 16, at most 256 running requests"
    ]
    assert [line.partition(":")[0] for line in kv_lines([one, other])] == [
        "KV cache of engine 0",
        "KV cache of engine 1",
    ]


@pytest.mark.parametrize(
    ("flag", "text", "most"),
    [
        (False, "", None),
        (False, "[trajectories]\nmax_sessions = 2", None),
        (True, "", 10_000),
        (True, "[trajectories]\nmax_sessions = 2", 2),
        (False, "[trajectories]\nenabled = true\nmax_sessions = 2", 2),
    ],
)
async def test_trajectories_are_kept_if_asked_within_the_bounds(
    flag: bool, text: str, most: int | None, tmp_path: Path
) -> None:
    file = tmp_path / "caesura.toml"
    file.write_text(text)
    kept = kept_sessions(flag, Config.load(file), None)
    assert (kept is None) == (most is None)
    if kept is None or most is None:
        return
    for name in map(str, range(3)):
        kept.of_run(Origin(name, name), "answer")
        assert len(kept) == min(int(name) + 1, most)
        assert kept.find(name, "another key") is not None  # there are no keys
    kept.close()


@pytest.mark.parametrize(
    "name", ["max_sessions", "max_tokens", "max_key_sessions", "max_key_tokens", "max_hours"]
)
def test_wrong_bounds_of_trajectories_are_told(name: str, tmp_path: Path) -> None:
    file = tmp_path / "caesura.toml"
    file.write_text(f"[trajectories]\n{name} = 0")
    with pytest.raises(SetupError, match=rf"caesura\.toml, line 1: \[trajectories\]: {name}: "):
        Config.load(file)


STARTS = """
import contextlib, os, signal
from caesura.runtime.cli import serve
from caesura.runtime.cli.app import app
from caesura.runtime.testing import ScriptedEngine

@contextlib.asynccontextmanager
async def engine_on(options):
    if {terminated}:
        os.kill(os.getpid(), signal.SIGTERM)
        await __import__("asyncio").Event().wait()
    yield ScriptedEngine([])

serve.engine_on = engine_on
original = serve._announce
def announce(*told):
    original(*told)
    os.kill(os.getpid(), signal.SIGTERM)
serve._announce = announce
app(["serve", "--port", "0", "--no-trace", "--no-responses", "--no-calibrate", "-m", "org/model"])
"""


@pytest.mark.parametrize("terminated", [False, True])
def test_each_stage_of_the_start_is_a_line_and_sigterm_ends_it_at_any_time(terminated, tmp_path):
    program = STARTS.format(terminated=terminated)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.setblocking(False)
        ran = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")},
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        with suppress(BlockingIOError):
            told = b""
            told = systemd.recv(100)
    assert ran.returncode == 0, ran.stderr
    assert told == (b"" if terminated else b"READY=1")
    lines = ran.stderr.splitlines()
    if terminated:
        assert lines == ["stopped by SIGTERM before it listened"]
        assert not ran.stdout
    else:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/v1\n", ran.stdout)
        assert re.fullmatch(rf"listening at {ran.stdout.strip()} after \d+ s", lines[-1])


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("--tensor-parallel-size 2", "-- --tensor-parallel-size 2"),
        ("-tp 2 --port 80", "--port 80 -- -tp 2"),
        (
            "M --port 80 --max-model-len=9 --enforce-eager N -- --dtype auto",
            "M --port 80 N -- --max-model-len=9 --enforce-eager --dtype auto",
        ),
        ("--lora-modules a=b --no-enable-prefix-caching", None),
        ("--compilation-config.mode 2", None),
    ],
)
def test_options_of_vllm_before_the_dashes_are_told_with_what_to_type(typed, meant):
    said = misplaced(typed.split(), {"--port", "--model"}, "caesura serve")
    assert said.endswith(f": caesura serve {meant or '-- ' + typed}")
    assert re.search("of vLLM, and stands? behind `--`", said)


@pytest.mark.parametrize("typed", ["--port 80 M", "-- --max-model-len 9", "--unknown 3", ""])
def test_other_command_lines_are_left_alone(typed):
    assert misplaced(typed.split(), {"--port"}, "caesura serve") == ""


@pytest.mark.parametrize("command", ["serve", "chat", "ask q", "calibrate"])
def test_commands_say_where_options_of_vllm_stand(command):
    result = CliRunner().invoke(app, [*command.split(), "--tensor-parallel-size", "2"])
    assert result.exit_code == 2
    assert f"{command} -- --tensor-parallel-size 2" in result.stderr
    refused = CliRunner().invoke(app, [*command.split(), "--ssl-keyfile", "k"])
    assert refused.exit_code == 2 and "proxy with TLS" in refused.stderr


def test_the_model_may_come_first():
    source = ModelOptions(["org/model", "--dtype", "auto"])
    assert source.with_model_first() == ModelOptions(["--dtype", "auto"], "org/model")
    assert (given := ModelOptions(["--dtype", "auto"], "m")).with_model_first() is given
    with pytest.raises(UsageError, match="two models are named, m and other"):
        ModelOptions(["other"], "m").with_model_first()


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("-- --port 8448", "--port has no effect behind `--`: give it to `caesura serve`"),
        ("one -m two", "two models are named, two and one"),
    ],
)
def test_a_mistake_is_told_before_vllm_is_loaded(typed, said):
    program = (
        "import sys; sys.modules['vllm'] = None\n"
        "from caesura.runtime.cli.app import app\n"
        f"app(['serve', '--port', '0', *{typed.split()!r}])"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.returncode == 1
    assert said in ran.stderr
