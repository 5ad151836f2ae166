"""The example of a research agent runs as it is shown, without a model."""

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[3] / "examples" / "05_research_agent.py"


def test_the_example_answers_with_sources(tmp_path: Path) -> None:
    (tmp_path / "blocks.md").write_text("# Blocks\n\nA block with a copy on the host is released.")
    (tmp_path / "bad.txt").write_bytes(b"\0")
    done = subprocess.run(
        [sys.executable, EXAMPLE, tmp_path],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "skipped" in done.stdout
    assert "1 files, 1 passages" in done.stdout
    assert f"Blocks ({tmp_path.name}/blocks.md) says: A block with a copy" in done.stdout
