"""A real engine with predictors of lengths from prompts beside it."""

import asyncio
from pathlib import Path

import pytest

from caesura.runtime.launch import start_engine
from caesura.runtime.sdk.agent import Agent
from caesura.scheduler.messages import Sampling
from caesura.scheduler.prompt_lengths.encoder import Encoder
from caesura.scheduler.prompt_lengths.learner import Linear
from caesura.scheduler.prompt_lengths.predictor import train_predictor
from caesura.scheduler.prompt_lengths.training import Plan
from caesura.scheduler.vllm.client.engine import VllmEngine
from tests.prompt_lengths.prompts import told

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("kind", ["linear", pytest.param("encoder", marks=pytest.mark.slow)])
async def test_prompts_are_predicted_while_an_agent_runs(tmp_path: Path, kind: str) -> None:
    learner = Linear(1) if kind == "linear" else Encoder.small(1, layers=1, hidden=32)
    train_predictor(learner, "l1", told(60), Plan(epochs=1, rate=0.01)).save(tmp_path)
    settings = {"length_predictor": str(tmp_path), "ranking": "ssjf"}
    engine = await start_engine(settings=settings)
    assert isinstance(engine, VllmEngine)
    try:
        agent = Agent(engine, ["calculator"], sampling=Sampling(temperature=0.0, max_tokens=64))
        answers = await asyncio.gather(*(agent.run(f"What is {n} * 17?") for n in (48, 53)))
        assert all(len(answer.calls) == 1 for answer in answers)
        prompts = {}
        for _ in range(1200):
            prompts = (await engine.state())["prompts"]
            if prompts["answered"] + prompts["dropped"] == prompts["asked"]:
                break
            await asyncio.sleep(0.05)
        assert prompts["answered"] == prompts["asked"] == 2 and prompts["restarts"] == 0
    finally:
        await engine.close()
