"""Draws, compiles and stores games, checks with a planner that they can be won, and plays them."""

import contextlib
import hashlib
import json
import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import textworld
from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
from textworld.envs import PddlEnv

from caesura.tools.environment.alfworld.problem import game
from caesura.tools.environment.alfworld.task import Task, core, draw
from caesura.tools.environment.view import View

FORMAT = 1
"""Increased when the same seeds give other games, so that stored files are not used."""
TRIES = 5
USEFUL_FIRST = ("move", "heat", "cool", "clean", "use", "open", "take", "slice", "go", "close")


class AlfworldGames:
    """ALFWorld's games by number; `options` are `Settings` as JSON, and the directory `data`."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = {
            name: options[name] for name in ("seed", "task_types", "max_places", "max_steps")
        }
        self._directory = Path(options["data"])
        infos = textworld.EnvInfos(won=True, admissible_commands=True)
        self._env = AlfredDemangler(PddlEnv(infos))
        self._planner = PddlEnv(textworld.EnvInfos(policy_commands=True))

    def reset(self, number: int) -> View:
        """Start game `number`. Raises RuntimeError where no drawn game can be won."""
        path = self._directory / f"{self._digest(number)}.tw-pddl"
        with contextlib.suppress(OSError, ValueError):  # the file is missing or damaged
            return _view(self._begin(json.loads(path.read_text()), number))
        for attempt in range(TRIES):
            name = f"{self._options['seed']}/{number}/{attempt}"
            task = draw(name, self._options["task_types"], self._options["max_places"])
            found = game(task, random.Random(name))
            found["walkthrough"] = self._walkthrough(task, self._begin(found, number))
            found["solvable"] = found["walkthrough"] is not None
            if found["solvable"] and len(found["walkthrough"]) <= self._options["max_steps"]:
                _keep(path, found)
                return _view(self._begin(found, number))
        raise RuntimeError(f"none of the {TRIES} games drawn can be won")

    def step(self, action: str) -> View:
        """Perform what the game calls `action`; an unknown action has no effect."""
        words = " ".join(action.lower().split()).strip(" .!\"'`")
        state, _, _ = self._env.step(words)
        return _view(state)

    def _begin(self, found: dict[str, Any], number: int) -> Any:
        random.seed(number)  # TextWorld's grammar draws from the module's own generator
        np.random.seed(number)
        self._env.load(found)
        return self._env.reset()

    def _walkthrough(self, task: Task, state: Any) -> list[str] | None:
        """Return the commands that win the game just started, tried out in it; else None.

        Fast Downward plans in a room reduced to what the task needs: a full room may take minutes,
        and the plan is valid there too.
        """
        self._planner.load(game(core(task), random.Random(0)))
        names = {thing: info.name.strip() for thing, info in state["_entity_infos"].items()}
        plan = [
            " ".join(names.get(word, word) for word in command.split())
            for command in self._planner.reset()["policy_commands"]
        ]
        for command in plan:
            state, _, _ = self._env.step(command)
        return plan if state["won"] else None

    def _digest(self, number: int) -> str:
        said = json.dumps([FORMAT, self._options, number], sort_keys=True)
        return hashlib.sha256(said.encode()).hexdigest()[:24]


def _keep(path: Path, found: dict[str, Any]) -> None:
    """Write a game's file, whole or not at all; if that fails, the game is drawn again later."""
    part = path.with_name(f".{os.getpid()}.part")
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps(found))
        part.replace(path)


def _view(state: Any) -> View:
    text = state["feedback"].removeprefix("-= Welcome to TextWorld, ALFRED! =-")
    return View(
        text="\n".join(line for line in text.splitlines() if line.strip()),
        actions=_in_order(state["admissible_commands"]),
        outcome="won" if state["won"] else None,
    )


def _in_order(commands: Sequence[str]) -> list[str]:
    """Return the commands, those that change something first."""
    ranks = {verb: rank for rank, verb in enumerate(USEFUL_FIRST)}
    return sorted(commands, key=lambda each: (ranks.get(each.split()[0], len(ranks)), each))
