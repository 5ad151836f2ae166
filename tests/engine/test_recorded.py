"""What a run on the real engine leaves in a recording."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from caesura.runtime.launch import facts_of, record
from caesura.runtime.recording import catalog
from caesura.runtime.recording.recorder import Recorder
from caesura.runtime.recording.runs import KINDS, Runs
from caesura.runtime.recording.storage import Store
from caesura.runtime.sdk.agent import Agent
from caesura.scheduler.messages import Sampling
from caesura.scheduler.vllm.client.engine import VllmEngine
from caesura.scheduler.vllm.engine.compose import settings_of
from caesura.simulator.policy import recorded_policy

pytestmark = pytest.mark.engine


async def test_a_run_and_what_the_scheduler_did_with_it_come_together(
    engine: VllmEngine, settled: Callable[[], Any], tmp_path: Path
) -> None:
    facts = await facts_of(engine)
    assert facts["total_blocks"] == (await engine.state())["blocks_total"]
    assert facts["block_size"] > 0 and facts["block_bytes"] > 0
    assert facts["kv_groups"] == "1 of full attention"
    # All that a replay of the recorded policy needs.
    policy, config = recorded_policy(facts, "as recorded"), engine.llm.vllm_config
    assert policy.settings == settings_of(config).told() | {"handling": facts["handling"]}
    assert policy.most_running == config.scheduler_config.max_num_seqs
    assert policy.chunk_tokens == facts["most_step_tokens"] > 0
    assert policy.prefix_caching is config.cache_config.enable_prefix_caching
    path = tmp_path / "traces.sqlite"
    with Recorder(Store(path), about=facts) as recorder:
        stop = record(engine, recorder)
        sampling = Sampling(temperature=0.0, max_tokens=64)
        agent = Agent(engine, ["calculator"], sampling=sampling, recorder=recorder)
        answer = await agent.run("What is 48 * 17?")
        assert len(answer.calls) == 1
        await settled()
        stop()
        await agent.run("What is 12 * 7?")  # its spans are recorded, and nothing of the engine's
        await settled()
    assert recorder.recording is not None
    first, second = Runs(catalog.entries(path, recorder.recording, KINDS)).runs()
    assert (len(first.turns), len(first.calls), len(first.sessions)) == (2, 1, 1)
    (pause,) = first.pauses
    assert pause.opening is not None and pause.ended is not None
    assert (pause.ended.tool, pause.ended.outcome, pause.ended.handling) == (
        "calculator",
        "resumed",
        first.turns[1].attributes["caesura.pause.handling"],
    )
    # The pause lies between the two turns.
    assert first.turns[1].end is not None
    assert first.turns[0].start < pause.told.at < first.turns[1].end
    # Each turn was rendered, then handed to the engine, which had it later.
    entries = list(catalog.entries(path, recorder.recording))
    (lanes,) = [one for one in entries if one["kind"] == "lanes"][:1]
    for turn in first.turns:
        (sent,) = [one for one in turn.events if one.name == "caesura.request_sent"]
        assert turn.end is not None and turn.start < sent.at < turn.end
    assert first.turns[0].start < lanes["at"][0]
    assert second.sessions == [] and len(second.turns) == 2
    kinds = {each["kind"] for each in entries}
    assert {"span", "lanes", "steps", "opening", "pause", "session"} <= kinds
