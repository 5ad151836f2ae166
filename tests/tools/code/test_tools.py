"""The tools `python`, `shell` and `files`, as a model calls them."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from caesura.tools.artifacts import ArtifactStore
from caesura.tools.code.box import BoxFailed
from caesura.tools.code.sandbox import SandboxSettings
from caesura.tools.code.shell import Outcome, outcome_in, result_of
from caesura.tools.code.writing_back import Folder
from caesura.tools.config.caesura_toml import Config
from caesura.tools.config.toolset import BUILTINS, Toolset
from caesura.tools.dispatcher import Dispatcher
from caesura.tools.result import ToolCall
from caesura.tools.services import Services, SetupError, ToolSettings


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of a user."""
    place = tmp_path / "project"
    (place / "src").mkdir(parents=True)
    (place / "src" / "a.py").write_text("one = 1\ntwo = 2\nthree = 3\n")
    (place / "notes.md").write_text("# Notes\n\nTwo oaks.\n")
    (place / ".env").write_text("KEY=secret\n")
    (place / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (place / "run.sh").chmod(0o4755)
    (place / "away").symlink_to("/etc/shadow")
    (place / "up").symlink_to("..")
    os.mkfifo(place / "pipe")
    (tmp_path / "beside.txt").write_text("beside")
    return place


async def test_python_keeps_its_state_and_tells_the_last_value(tools: Any) -> None:
    call = await tools(python={})
    assert (await call("python", code="x = 20\nx + 1")).content == "21"
    assert (await call("python", code="print('a'); x * 2")).content == "a\n40"
    assert (await call("python", code="y = x")).content == "done, without output"
    told = await call("python", code="def f():\n    return 1 / 0\nf()")
    assert told.error is None
    assert told.content.splitlines()[1:3] == ['  File "<call 4>", line 3, in <module>', "    f()"]
    assert told.content.endswith("ZeroDivisionError: division by zero")
    assert "interpreter.py" not in told.content
    syntax = (await call("python", code="a b")).content
    assert syntax.endswith("SyntaxError: invalid syntax")
    both = await call("python", code="import sys, os; os.system('echo from the shell')\n")
    assert both.content == "from the shell\n0"
    assert (await call("python", code="print('x', file=sys.stderr)")).content == "[stderr]\nx"


async def test_python_that_takes_too_long_is_interrupted_and_keeps_its_state(tools: Any) -> None:
    call = await tools(python={"seconds": 1.0})
    await call("python", code="x = 1")
    told = await call("python", code="print('begun', flush=True)\nwhile True: pass")
    assert told.content.startswith("begun\n")
    assert told.content.endswith("KeyboardInterrupt\n[stopped after 1 s]")
    assert (await call("python", code="x")).content == "1"


async def test_an_interpreter_that_ended_is_told_of(tools: Any) -> None:
    call = await tools(python={}, shell={})
    await call("python", code="x = 1")
    told = await call("python", code="import os; os.abort()")
    assert told.content == "[the interpreter ended: variables and imports are lost]"
    assert "NameError" in (await call("python", code="x")).content
    await call("shell", command="kill -9 -1")
    told = await call("python", code="1")
    assert told.content == "1\n[the interpreter had ended before this call: a new one ran it]"


async def test_files_and_pictures_that_code_writes_are_told(tools: Any) -> None:
    call = await tools(python={}, files={})
    told = await call("python", code="open('table.csv', 'w').write('a,b')")
    assert told.content == "3\n[files written: table.csv (3 bytes)]"
    assert (await call("files", action="read", path="table.csv")).content == "1\ta,b"
    code = "import base64; open('dot.png', 'wb').write(base64.b64decode('iVBORw0KGgoAAAA='))"
    told = await call("python", code=code)
    (picture,) = told.artifacts
    assert picture.media_type == "image/png"
    assert told.content.endswith(f"[picture: {picture.url}]")
    assert picture.path.read_bytes() == b"\x89PNG\r\n\x1a\n\0\0\0"
    told = await call("python", code="open('no.png', 'wb').write(b'<svg onload=x>')")
    assert told.artifacts == ()


async def test_figures_are_saved(tools: Any) -> None:
    pytest.importorskip("matplotlib")
    call = await tools(python={})
    code = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()"
    told = await call("python", code=code)
    assert [each.media_type for each in told.artifacts] == ["image/png"]
    assert "figure-1-1.png" in told.content


async def test_shell_works_on_a_copy_of_the_folder(tools: Any, folder: Path) -> None:
    call = await tools(shell={"folder": str(folder)}, files={}, python={})
    told = await call("shell", command="cat src/a.py; echo more >> notes.md; rm run.sh")
    lines = ["exit code 0", "one = 1", "two = 2", "three = 3"]
    assert told.content.splitlines() == [*lines, "[files written: notes.md (24 bytes)]"]
    assert (folder / "notes.md").read_text().endswith("oaks.\n")
    assert (folder / "run.sh").exists()
    names = (await call("shell", command="ls -A")).content.split()
    assert names[:3] == ["exit", "code", "0"]
    assert set(names[3:]) == {"src", "notes.md", "away", "up"}
    for way in ("cat away", "cat up/beside.txt", "cat .env"):
        told = await call("shell", command=way)
        assert told.content.startswith("exit code 1\n[stderr]\ncat: ")
    assert (await call("python", code="open('notes.md').read()[-5:]")).content == "'more\\n'"


async def test_bits_that_give_rights_are_not_copied(tools: Any, folder: Path) -> None:
    call = await tools(shell={"folder": str(folder)})
    told = await call("shell", command="stat -c %a run.sh src/a.py; ./run.sh")
    assert told.content.splitlines()[1:] == ["755", "644", "ran"]


async def test_the_end_of_a_command_is_told(tools: Any) -> None:
    call = await tools(shell={"seconds": 1.0})
    assert (await call("shell", command="exit 3")).content == "exit code 3"
    assert (await call("shell", command="sleep 60")).content == "stopped after 1 s"
    assert (await call("shell", command="kill -9 $$")).content == "ended by signal 9"
    assert (await call("shell", command="echo o; echo e >&2")).content == (
        "exit code 0\no\n[stderr]\ne"
    )


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("exit code 3", Outcome(3, "", "")),
        ("exit code 0\na\nb\n[stderr]\nc", Outcome(0, "a\nb\n", "c")),
        ("stopped after 60 s\na", Outcome(None, "a", "")),
        ("ended by signal 9\na", Outcome(1, "a", "ended by signal 9")),
        ("error: all sandboxes are in use", Outcome(1, "", "error: all sandboxes are in use")),
    ],
)
def test_a_result_can_be_read_again(text: str, outcome: Outcome) -> None:
    assert outcome_in(text) == outcome
    if text.startswith("exit"):
        assert result_of(outcome) == text


async def test_files_are_listed_read_written_edited_and_searched(tools: Any, folder: Path) -> None:
    call = await tools(files={"folder": str(folder)})

    async def said(action: str, **arguments: Any) -> str:
        return str((await call("files", action=action, **arguments)).content)

    assert await said("list") == "notes.md (19 bytes)\nrun.sh (19 bytes)\nsrc/a.py (26 bytes)"
    assert await said("list", pattern="*.py") == "src/a.py (26 bytes)"
    assert await said("read", path="src/a.py", first_line=2, last_line=2) == "2\ttwo = 2"
    assert await said("read", path="a.py") == "error: there is no 'a.py'; did you mean 'src/a.py'?"
    assert "the lines 1 to 3" in await said("read", path="src/a.py", first_line=9)
    assert (
        await said("search", pattern=r"t\w+ = \d") == "src/a.py:2: two = 2\nsrc/a.py:3: three = 3"
    )
    assert await said("search", pattern="(") == (
        "error: pattern is no regular expression: missing ), unterminated subpattern at position 0"
    )
    assert await said("write", path="new/b.txt", text="b\n") == "wrote new/b.txt, 1 lines"
    assert await said("edit", path="new/b.txt", old="b", new="c") == "replaced 1 place in new/b.txt"
    assert await said("read", path="new/b.txt") == "1\tc"
    twice = await said("edit", path="src/a.py", old=" = ", new=": ")
    assert twice.startswith("error: old stands 3 times in 'src/a.py' (lines 1, 2, 3)")
    assert await said("edit", path="src/a.py", old=" = ", new=": ", all=True) == (
        "replaced 3 places in src/a.py"
    )
    assert "does not stand" in await said("edit", path="src/a.py", old="ones", new="x")
    assert await said("edit", path="src/a.py", new="x") == "error: the action edit needs old"


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../x", "up/x", "away", "src/../../x", "/proc/1/x"]
)
@pytest.mark.parametrize("action", ["read", "write", "list", "search"])
async def test_files_follow_no_way_out(tools: Any, folder: Path, path: str, action: str) -> None:
    call = await tools(files={"folder": str(folder)})
    told = await call("files", action=action, path=path, text="x", pattern="x")
    assert told.content.startswith(f"error: {path!r} is not in the working folder")
    pipe = await call("files", action="read", path="pipe")
    assert pipe.content == "error: there is no 'pipe'"


async def test_files_wait_for_no_pipe(tools: Any) -> None:
    call = await tools(shell={}, files={})
    await call("shell", command="mkfifo pipe; ln -s /proc/self/fd/1 out; printf '\\0' > zero")
    assert (await call("files", action="read", path="pipe")).content == "error: 'pipe' is no file"
    assert (
        "not in the working" in (await call("files", action="write", path="out", text="x")).content
    )
    assert "is no text" in (await call("files", action="read", path="zero")).content


async def test_a_file_can_be_removed_from_a_full_sandbox(tools: Any) -> None:
    call = await tools(shell={"disk_mb": 2}, files={}, python={})
    await call("shell", command="head -c 9000000 /dev/zero > big")
    told = await call("files", action="write", path="b.txt", text="x" * 5000)
    assert told.content == "error: No space left on device: 'b.txt'"
    assert (await call("shell", command="rm big")).content == "exit code 0"
    assert (await call("files", action="write", path="b.txt", text="x")).error is None


async def test_the_three_share_their_settings(tools: Any, folder: Path) -> None:
    with pytest.raises(SetupError) as told:
        await tools(python={"memory_mb": 100}, shell={"memory_mb": 200})
    assert str(told.value).startswith("[tools.shell]: memory_mb is 200, and [tools.python] has 100")
    with pytest.raises(SetupError, match=r"\[tools.files\]: folder: there is no folder '/nowhere'"):
        await tools(files={"folder": "/nowhere"})
    with pytest.raises(SetupError, match="the interpreter '/nowhere' does not start"):
        await tools(python={"interpreter": "/nowhere"})
    call = await tools(python={"disk_mb": 1}, files={"folder": str(folder)})
    (folder / "big").write_bytes(b"x" * 2_000_000)
    told = await call("python", code="1")
    assert told.content == "error: the sandbox cannot be made: the folder does not fit into disk_mb"


async def test_changes_are_written_back_where_that_is_set(tools: Any, folder: Path) -> None:
    settings = {"folder": str(folder), "write_back": True}
    call = await tools(shell=settings, files={}, python={})
    await call("files", action="edit", path="src/a.py", old="one", new="eins")
    assert (folder / "src/a.py").read_text().startswith("eins = 1\n")
    await call(
        "python", code="import os; os.makedirs('new/deep'); open('new/deep/b', 'w').write('b')"
    )
    assert (folder / "new/deep/b").read_text() == "b"
    told = await call("shell", command="mv src source; rm notes.md; chmod 4777 run.sh; mkdir .git")
    assert told.content.startswith("exit code 0\n[files written: run.sh (19 bytes), source/a.py")
    assert not (folder / "notes.md").exists()
    assert not (folder / "src/a.py").exists()
    assert (folder / "source/a.py").read_text().startswith("eins")
    assert (folder / "run.sh").stat().st_mode & 0o7777 == 0o755
    assert (folder / ".env").read_text() == "KEY=secret\n"
    hidden = "echo x > .git/hooks; echo x > .env; chmod 000 source; ln -s /etc/passwd link"
    told = await call("shell", command=hidden)
    assert "not written to the user's folder: .env (its name is skipped), link (it is a link)" in (
        told.content
    )
    assert not (folder / ".git").exists()
    assert (folder / "source/a.py").exists()


async def test_nothing_is_written_back_through_a_link_or_over_changes(
    tools: Any, folder: Path, tmp_path: Path
) -> None:
    call = await tools(shell={"folder": str(folder), "write_back": True})
    assert (await call("shell", command="true")).content == "exit code 0"
    (folder / "src" / "a.py").write_text("changed by its user")
    (folder / "later").symlink_to(tmp_path)
    (folder / "beside.txt").symlink_to(tmp_path / "beside.txt")
    script = "echo x > src/a.py; mkdir later; echo x > later/beside.txt; echo x > beside.txt"
    told = await call("shell", command=script)
    assert (tmp_path / "beside.txt").read_text() == "beside"
    assert (folder / "src" / "a.py").read_text() == "changed by its user"
    for name in ("beside.txt", "src/a.py"):
        assert f"{name} (somebody else changed it)" in told.content
    assert "later/beside.txt (a link or a file stands in its way)" in told.content


@pytest.mark.parametrize("path", ["/etc/x", "../x", "a/../../x", "a//b", ".", ""])
def test_a_path_out_of_the_folder_is_refused(tmp_path: Path, path: str) -> None:
    place = tmp_path / "inner"
    place.mkdir()
    line = json.dumps({"path": path, "mode": 0o644, "data": "eA==", "link": False})
    folder = Folder(str(place), (), time.time_ns())
    assert folder.write(line) == {path: "it is not in the folder"}
    assert folder.remove([path]) == {path: "it is not in the folder"}
    assert list(tmp_path.rglob("*")) == [place]


async def test_a_tool_alone_has_the_settings_of_the_others(tmp_path: Path, folder: Path) -> None:
    services = Services(ArtifactStore(tmp_path / "artifacts"), tmp_path)
    tables: dict[str, Any] = {
        "shell": {"folder": "project", "seconds": 5.0},
        "python": {"disk_mb": 7},
    }
    toolset = Toolset(services, tables, enabled=["files"], origin=tmp_path / "caesura.toml")
    async with toolset:
        settings = toolset.settings["files"]
        assert isinstance(settings, SandboxSettings)
        assert (settings.folder, settings.disk_mb, settings.seconds) == (folder, 7, 20.0)
    wrong = Toolset(services, {"shell": {"disk_mb": "x"}}, enabled=["files"])
    with pytest.raises(SetupError, match=r"\[tools.shell\]: disk_mb"):
        wrong.make("files")


def test_the_tables_share_what_the_sandbox_shares() -> None:
    shared = set(SandboxSettings.model_fields) - set(ToolSettings.model_fields) - {"seconds"}
    for name in ("python", "shell", "files"):
        assert BUILTINS[name].shares == (("python", "shell", "files"), BUILTINS["python"].shares[1])
    assert set(BUILTINS["python"].shares[1]) == shared


async def test_sandboxes_are_bounded(tmp_path: Path) -> None:
    services = Services(ArtifactStore(tmp_path / "artifacts"), tmp_path)
    asked = ToolCall("c", "python", '{"code": "1"}')
    async with (
        Toolset(services, {"python": {"sandboxes": 1}}, enabled=["python"]) as toolset,
        Dispatcher(toolset.registry) as other,
    ):
        async with Dispatcher(toolset.registry) as first:
            assert (await first.run(asked)).content == "1"
            assert (await first.run(asked)).content == "1"
            told = await other.run(asked)
            assert told.content == "error: all sandboxes are in use: try again later"
        assert (await other.run(asked)).content == "1"


async def test_without_a_safe_sandbox_a_tool_is_refused(
    tools: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(python: str) -> str:
        raise BoxFailed("the sandbox does not hold: a program in it could mount")

    monkeypatch.setattr("caesura.tools.code.sandbox.check", fails)
    with pytest.raises(SetupError) as told:
        await tools(shell={})
    assert str(told.value) == (
        "the tool 'shell' has no safe sandbox here: "
        "the sandbox does not hold: a program in it could mount"
    )


def test_a_foreign_configuration_may_not_reach_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "caesura.toml"
    for line in ('interpreter = "./python"', 'folder = ".."', 'folder = "~"', 'folder = "/etc"'):
        file.write_text(f"[tools.shell]\n{line}\n")
        with pytest.raises(SetupError, match="you have not allowed it"):
            Config.load()
    file.write_text('[tools.shell]\nfolder = "."\n')
    assert Config.load().tools == {"shell": {"folder": "."}}
