"""Train the bundled model: TRL's GRPO learns from what an agent did with the calculator.

    pip install trl==1.16.0
    python examples/20_train.py
    python examples/20_train.py --seed 2 --log run-2.json --out trained

The questions are put in ways that the model does not know: it often calls the calculator with the
wrong sum. A reward of 1 is for the right number, from the calculator and in the answer. Each step
gives the trainer's weights to the engine, samples each question 8 times at temperature 1, and
trains on the tokens as they were sampled; those of the tool have a mask of 0. Before and after, the
model is asked about other numbers, greedily, and some questions of the kind that it knows.
It takes up to ten minutes on two cores, and ends at Ctrl-C.
"""

import argparse
import asyncio
import json
import os
import random
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from caesura import Agent, LimitReached, Limits, Sampling
from caesura.runtime.launch import BUNDLED_MODEL, start_engine
from caesura.trajectories import Episode, collect, to_trl

KINDS, SAMPLES = 6, 8
"""A step has a question of each kind, sampled this many times: a group of GRPO."""
LIMITS = Limits(max_turns=2, max_tokens=60)
RATE = 2e-5
Task = tuple[str, int]
"""A question, and the number that answers it."""


def unknown(kind: int, rng: random.Random) -> Task:
    """Return a question of one of six kinds that the model was never asked."""
    low, high = sorted(rng.sample(range(2, 60), 2))
    few = rng.randrange(2, 20)
    pages = f"A book has {high + low} pages. I have read {low} of them."
    kinds = (
        (f"I walk {high} km every day. How far do I walk in {few} days?", high * few),
        (f"Eva is {high} and Tom is {low}. How much older is Eva?", high - low),
        (f"How many legs do {high} bugs have, if each has {few}?", high * few),
        (f"How much more is {high} than {low}?", high - low),
        (f"Multiply {high} by {low}.", high * low),
        (f"{pages} How many pages are left to read?", high),
    )
    return kinds[kind % KINDS]


def known(kind: int, rng: random.Random) -> Task:
    """Return a question of one of four kinds that the model was made for."""
    low, high = sorted(rng.sample(range(2, 60), 2))
    kinds = (
        (f"What is {low}*{high}?", low * high),
        (f"What is {low} plus {high}?", low + high),
        (f"I have {high} lamps and give away {low}. How many lamps are left?", high - low),
        (f"I have {low} boxes of {high} eggs, how many eggs?", low * high),
    )
    return kinds[kind % len(kinds)]


def drawn(
    make: Callable[[int, random.Random], Task],
    count: int,
    rng: random.Random,
    besides: Sequence[Task] = (),
) -> list[Task]:
    """Return questions of all kinds in turn, none of them twice and none of `besides`."""
    made: list[Task] = []
    while len(made) < count:
        task = make(len(made), rng)
        if task not in made and task not in besides:
            made.append(task)
    return made


def reward(wanted: dict[str, int], episode: Episode[str]) -> float:
    """Return 1 if the calculator returned the number and the answer has it, else 0."""
    assert episode.answer is not None  # the caller's promise
    number = str(wanted[str(episode.prompt)])
    calculated = any(result.content == number for _, result in episode.answer.calls)
    return float(calculated and number in re.findall(r"\d+", episode.answer.text))


class Rollouts:
    """An engine for a trainer, which is no coroutine: `run` runs those on the engine's loop."""

    def __init__(self, engine: Any, run: Callable[[Any], Any], folder: Path, seed: int) -> None:
        self.engine, self._run, self._seed = engine, run, seed
        self.folder = folder
        self.wanted: dict[str, int] = {}
        self.steps: list[dict[str, float]] = []
        self._trained = time.monotonic()

    def load(self, model: Any) -> None:
        """Give the engine a model's weights, and drop all that was computed with others."""
        model.save_pretrained(self.folder)
        self._run(self._load())

    async def _load(self) -> None:
        path = {"weights_path": str(self.folder)}
        await self.engine.llm.collective_rpc("reload_weights", kwargs=path)
        # Also what is kept for sessions, and copies on the host.
        assert await self.engine.llm.reset_prefix_cache(reset_connector=True)

    def sample(self, questions: Sequence[str], sampling: Sampling, samples: int) -> list[Episode]:
        """Let the agent answer each question `samples` times."""
        agent = Agent(
            self.engine, ["calculator"], sampling=sampling, limits=LIMITS, trajectories=True
        )
        paid = partial(reward, self.wanted)
        episodes = self._run(collect(agent, questions, samples=samples, reward=paid))
        for each in episodes:
            if each.error is not None and not isinstance(each.error, LimitReached):
                raise each.error
        return episodes

    def share(self, tasks: Sequence[Task]) -> float:
        """Return the share of questions that the engine's weights answer right, greedily."""
        self.wanted.update(tasks)
        episodes = self.sample([question for question, _ in tasks], Sampling(temperature=0), 1)
        return sum(each.reward or 0 for each in episodes) / len(episodes)

    def __call__(self, prompts: Sequence[str], trainer: Any) -> dict[str, Any]:
        """Sample a step's questions: TRL's `rollout_func`, whose prompts stand there in groups."""
        began = time.monotonic()
        self.load(trainer.model)
        # Each step has another seed, and `collect` gives each sample of a question another one.
        seed = self._seed * 1_000_000 + len(self.steps) * SAMPLES
        episodes = self.sample(
            prompts[::SAMPLES], Sampling(temperature=1, seed=seed), samples=SAMPLES
        )
        rewards = [each.reward or 0.0 for each in episodes]  # a run that reached a limit has none
        rows = to_trl(each.trajectory for each in episodes)
        told = {
            "reward": sum(rewards) / len(rewards),
            "sampled_tokens": sum(sum(each) for each in rows["env_mask"]),
            "rollout_seconds": time.monotonic() - began,
            "train_seconds": began - self._trained if self.steps else 0.0,
        }
        self.steps.append(told)
        self._trained = time.monotonic()
        bar = "#" * round(40 * told["reward"])
        print(f"step {len(self.steps):3}  reward {told['reward']:.2f}  {bar}", flush=True)
        return {**rows, "paid": rewards}


def paid(completions: Sequence[str], paid: Sequence[float], **_: Any) -> list[float]:
    """Return what the episodes earned: TRL's reward function."""
    return list(paid)


def trainer_of(rollouts: Rollouts, tasks: Sequence[Task], options: argparse.Namespace) -> Any:
    """Return TRL's trainer of the bundled model."""
    import datasets
    import torch
    import transformers
    import trl

    torch.set_num_threads(1)  # more of them gain little on a model this small, and spin
    transformers.logging.disable_progress_bar()
    config = trl.GRPOConfig(
        output_dir=str(rollouts.folder / "trainer"),
        per_device_train_batch_size=KINDS * SAMPLES,
        num_generations=SAMPLES,
        shuffle_dataset=False,
        max_steps=options.steps,
        learning_rate=RATE,
        lr_scheduler_type="constant",
        temperature=1.0,
        seed=options.seed,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        save_strategy="no",
        report_to=[],
        logging_strategy="no",
        disable_tqdm=True,
    )
    model = transformers.AutoModelForCausalLM.from_pretrained(BUNDLED_MODEL, dtype=torch.float32)
    trainer = trl.GRPOTrainer(
        model=model,
        reward_funcs=[paid],
        rollout_func=rollouts,
        args=config,
        train_dataset=datasets.Dataset.from_list([{"prompt": question} for question, _ in tasks]),
        processing_class=transformers.AutoTokenizer.from_pretrained(BUNDLED_MODEL),
    )
    trainer.remove_callback(transformers.PrinterCallback)
    return trainer


def train(rollouts: Rollouts, options: argparse.Namespace) -> dict[str, Any]:
    """Train, and return what was measured."""
    rng = random.Random(options.seed)
    other, familiar = drawn(unknown, 48, rng), drawn(known, 48, rng)
    tasks = drawn(unknown, KINDS * options.steps, rng, other)
    began = time.monotonic()
    trainer = trainer_of(rollouts, tasks, options)
    rollouts.wanted.update(tasks)
    before = rollouts.share(other), rollouts.share(familiar)
    print(f"answered right, greedily: {before[0]:.0%}; of the known kind {before[1]:.0%}")
    trainer.train()
    rollouts.load(trainer.model)
    after = rollouts.share(other), rollouts.share(familiar)
    print(f"answered right, greedily: {after[0]:.0%}; of the known kind {after[1]:.0%}")
    if options.out is not None:
        trainer.save_model(str(options.out))
    packages = ("caesura", "trl", "transformers", "torch", "vllm")
    return {
        "seed": options.seed,
        "steps": rollouts.steps,
        "unknown": {"before": before[0], "after": after[0], "questions": len(other)},
        "known": {"before": before[1], "after": after[1], "questions": len(familiar)},
        "seconds": time.monotonic() - began,
        "cores": os.cpu_count(),
        "versions": {each: str(sys.modules[each].__version__) for each in packages},
    }


def trained(options: argparse.Namespace) -> dict[str, Any]:
    """Start an engine, train, and return what was measured."""
    with tempfile.TemporaryDirectory(prefix="caesura-") as folder, asyncio.Runner() as runner:
        engine = runner.run(start_engine())
        try:
            return train(Rollouts(engine, runner.run, Path(folder), options.seed), options)
        finally:
            runner.run(engine.close())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--seed", type=int, default=1, help="of questions, samples and training")
    parser.add_argument("--log", type=Path, help="a JSON file for what was measured")
    parser.add_argument("--out", type=Path, help="a folder for the trained model")
    options = parser.parse_args()
    if find_spec("trl") is None:
        parser.exit(1, "TRL is not installed: pip install trl==1.16.0\n")
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # `rollout_func` may change
    # TRL looks for vLLM's version, and does without vLLM here.
    warnings.filterwarnings("ignore", message="TRL currently supports vLLM")
    try:
        measured = trained(options)
    except KeyboardInterrupt:
        parser.exit(130, "\nended\n")
    if options.log is not None:
        options.log.write_text(json.dumps(measured, indent=1) + "\n")


if __name__ == "__main__":
    main()
