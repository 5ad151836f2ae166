"""vLLM's own spans, from a real engine."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
@pytest.mark.engine
async def test_vllms_spans_are_children_of_ours() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.runtime.tracing.vllm_program"),
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    written, _ = await process.communicate()
    assert process.returncode == 0
    spans = json.loads(written.splitlines()[-1])
    assert spans.count(["invoke_agent caesura-tiny", None]) == 2
    # One of the two runs: of a request that may pause, vLLM tells nothing.
    assert [parent for name, parent in spans if name == "llm_request"] == ["chat caesura-tiny"]
    calls = [["execute_tool calculator", "invoke_agent caesura-tiny"]]
    assert [each for each in spans if each[0].startswith("execute_tool")] == calls
    # The engine's records become spans of what it did.
    for phase, parent in (("prefill", "chat"), ("decode", "chat"), ("pause", "invoke_agent")):
        assert [phase, f"{parent} caesura-tiny"] in spans
