"""Files of JSON lines: synced, locked, cut at a torn line, and whole after a full disk."""

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from caesura.planning.run.journal import LineFile, OutputError, ResumeError


def read(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_rows_that_are_appended_together_keep_their_order(tmp_path: Path) -> None:
    file = LineFile(tmp_path / "out.jsonl")
    await asyncio.gather(*(file.append({"n": n}) for n in range(50)))
    file.close()
    assert [row["n"] for row in read(tmp_path / "out.jsonl")] == list(range(50))


async def test_a_torn_last_line_is_cut_and_rows_follow_the_last_whole_one(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text('{"n": 1}\n{"n": 2, "tex')
    file = LineFile(path)
    assert file.rows == [{"n": 1}]
    await file.append({"n": 3})
    file.close()
    assert read(path) == [{"n": 1}, {"n": 3}]


async def test_a_line_that_is_not_json_is_named(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text('{"n": 1}\nhello\n')
    with pytest.raises(ResumeError, match=r"out.jsonl, line 2: .*hello"):
        LineFile(path)


async def test_a_second_run_on_the_same_file_is_refused(tmp_path: Path) -> None:
    file = LineFile(tmp_path / "out.jsonl")
    with pytest.raises(ResumeError, match="another run writes"):
        LineFile(tmp_path / "out.jsonl")
    file.close()
    LineFile(tmp_path / "out.jsonl").close()


def test_a_killed_process_leaves_the_file_unlocked(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    code = (
        "import asyncio, sys, time; from pathlib import Path\n"
        "from caesura.planning.run.journal import LineFile\n"
        "file = LineFile(Path(sys.argv[1])); asyncio.run(file.append({'n': 1}))\n"
        "print('held', flush=True); time.sleep(60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    with pytest.raises(ResumeError):
        LineFile(path)
    process.send_signal(signal.SIGKILL)
    process.wait()
    file = LineFile(path)
    assert file.rows == [{"n": 1}]
    file.close()


FULL = """
import asyncio, resource, sys
from pathlib import Path
from caesura.planning.run.journal import OutputError
from caesura.planning.run.journal import LineFile

async def main():
    file = LineFile(Path(sys.argv[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
    done = 0
    try:
        for n in range(100):
            await file.append({"n": n, "text": "x" * 20})
            done += 1
    except OutputError as error:
        print(done, error)
    try:
        await file.append({"n": "later"})
    except OutputError:
        print("refused")
    file.close()

asyncio.run(main())
"""


def test_a_full_disk_leaves_whole_rows_and_refuses_more(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    ran = subprocess.run(
        [sys.executable, "-c", FULL, str(path)], capture_output=True, text=True, check=True
    )
    first, second = ran.stdout.splitlines()
    done = int(first.partition(" ")[0])
    assert 0 < done < 100
    assert "can't be written" in first
    assert second == "refused"
    assert [row["n"] for row in read(path)] == list(range(done))


def test_a_file_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"no/out.jsonl can't be written"):
        LineFile(tmp_path / "no" / "out.jsonl")
    assert not list(tmp_path.iterdir())
