"""The example that trains the bundled model: its weights in the engine, and two steps of TRL's."""

import asyncio
import json
import os
import subprocess
import sys
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from caesura import Sampling
from caesura.runtime.launch import BUNDLED_MODEL
from caesura.scheduler.vllm.client.engine import VllmEngine

EXAMPLE = Path(__file__).parents[2] / "examples" / "20_train.py"
QUESTIONS = ["What is 12*7?", "I have 31 lamps and give away 4. How many lamps are left?"]
GREEDY = Sampling(temperature=0)


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = spec_from_file_location("train", EXAMPLE)
    assert spec is not None and spec.loader is not None
    made = module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def model_from(folder: str) -> Any:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def likeliest(model: Any, episodes: list[Any]) -> tuple[list[int], list[int]]:
    """Return what was sampled in the episodes, and what the model finds likeliest there."""
    import torch

    sampled: list[int] = []
    best: list[int] = []
    for episode in episodes:
        made = episode.trajectory.rollout(own=False)
        with torch.no_grad():
            found = model(torch.tensor([made.ids])).logits[0].argmax(-1).tolist()
        places = [i for i, bit in enumerate(made.loss_mask, len(made.prompt_ids)) if bit]
        sampled += [made.ids[place] for place in places]
        best += [found[place - 1] for place in places]
    return sampled, best


@pytest.mark.engine
async def test_the_engine_samples_with_the_weights_that_it_was_given(
    engine: VllmEngine, example: ModuleType, tmp_path: Path
) -> None:
    loop = asyncio.get_running_loop()

    def run(work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    rollouts = example.Rollouts(engine, run, tmp_path, 1)
    rollouts.wanted.update(dict(zip(QUESTIONS, (84, 27), strict=True)))

    def play() -> list[tuple[list[int], list[int], list[Any]]]:
        told = []
        model = model_from(BUNDLED_MODEL)
        for change in (1, -1, -1):  # the second model likes least what the first one likes most
            model.model.norm.weight.data.mul_(change)
            rollouts.load(model)
            episodes = rollouts.sample(QUESTIONS, GREEDY, 1)
            told.append((*likeliest(model, episodes), episodes))
        return told

    try:
        first, other, again = await asyncio.to_thread(play)
    finally:
        await asyncio.to_thread(rollouts.load, model_from(BUNDLED_MODEL))
    for sampled, best, _ in (first, other, again):
        assert len(sampled) > 20 and sampled == best
    assert first[0] == again[0] != other[0]
    assert [each.reward for each in first[2]] == [1.0, 1.0]
    assert [each.reward for each in other[2]] != [1.0, 1.0]


def test_help_and_what_is_missing_are_told() -> None:
    def ran(*arguments: str) -> Any:
        command = [sys.executable, str(EXAMPLE), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert "--steps" in ran("--help").stdout
    if find_spec("trl") is None:
        done = ran()
        assert done.returncode == 1 and "pip install trl==1.16.0" in done.stderr


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_two_steps_of_training_change_the_model(tmp_path: Path) -> None:
    pytest.importorskip("trl")
    log, out = tmp_path / "log.json", tmp_path / "model"
    command = [sys.executable, str(EXAMPLE), "--steps", "2", "--log", str(log), "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(log.read_text())
    assert [step["sampled_tokens"] > 0 for step in told["steps"]] == [True, True]
    before, after = (model_from(each).model.norm.weight for each in (BUNDLED_MODEL, str(out)))
    assert not before.equal(after)
