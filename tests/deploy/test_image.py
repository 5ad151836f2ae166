"""The commands of the CPU image run in a fresh folder, and what it starts serves and stops."""

import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from caesura.distribution import COMMIT_FILE
from tests.deploy.image import ROOT, build, instructions, shell_of

DOCKERFILE = ROOT / "deploy" / "Dockerfile.cpu"
LOCK = "--requirement requirements/cpu.txt"


def test_instructions_are_read_with_the_lines_that_continue_them() -> None:
    text = "# comment\nRUN one \\\n    && apt-get update \\\n    && three\nUSER 5\n"
    run, user = instructions(text)
    assert (shell_of(run.text), tuple(user)) == ("one && three", ("USER", "5"))


def without_network(folder: Path) -> None:
    """Make the environment that the image's lock would fill, of what is installed here."""
    venv = folder / "opt" / "caesura"
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    # The build finds that of this environment, as an isolated one finds that of the index.
    pip = [str(venv / "bin" / "pip"), "--disable-pip-version-check", "uninstall", "-q", "-y"]
    subprocess.run([*pip, "setuptools"], check=True)
    (site,) = venv.glob("lib/python*/site-packages")
    (site / "installed.pth").write_text(sysconfig.get_path("purelib") + "\n")


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_image_serves_is_ready_and_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_network(tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_NO_BUILD_ISOLATION", "0")  # pip takes it for the option itself
    monkeypatch.delenv("PYTHONPATH", raising=False)
    entry = build(DOCKERFILE, tmp_path, {"COMMIT": "0123456789ab"}, skip=[LOCK])
    assert entry[0] == str(tmp_path / "opt" / "caesura" / "bin" / "caesura")
    (package,) = tmp_path.glob("opt/caesura/lib/python*/site-packages/caesura")
    assert (package / COMMIT_FILE).read_text() == "0123456789ab\n"
    server = subprocess.Popen(
        [*entry, "--port", "0", "--no-calibrate"],
        env={**os.environ, "HOME": str(tmp_path / "home")},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=(tmp_path / "log").open("w"),
        text=True,
    )
    try:
        assert server.stdout is not None
        url = server.stdout.readline()
        assert url, (tmp_path / "log").read_text()
        (probe,) = (
            text for word, text in instructions(DOCKERFILE.read_text()) if word[:3] == "HEA"
        )
        words = json.loads(probe.partition("CMD ")[2])
        port = re.findall(r":(\d+)/v1", url)[0]
        words[2] = words[2].replace(":8000/", f":{port}/")
        subprocess.run(words, check=True)
        server.send_signal(signal.SIGTERM)
        assert server.wait() == 0
    finally:
        server.kill()
        server.wait()
    told = (tmp_path / "log").read_text()
    for stage in (
        "starting vLLM",
        "is loaded after",
        "KV cache: ",
        "listening at",
    ):
        assert stage in told, told
