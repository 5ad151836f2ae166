"""Gymnasium environments that misbehave, for the process that plays to import."""

import os
import subprocess
import sys
import time
from pathlib import Path

import gymnasium
from gymnasium.spaces import Box, Discrete, Text


class Odd(gymnasium.Env):
    """Its actions say what goes wrong."""

    action_space = Text(max_length=300, charset=frozenset(map(chr, range(32, 127))))
    observation_space = Text(max_length=10**6)

    def __init__(self, mark: str = "") -> None:
        self.mark = mark

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if self.mark and Path(self.mark, "slow").exists():
            self.hang()
        return f"game {seed} in process {os.getpid()}", {}

    def step(self, action):
        if action == "hang":
            self.hang()
        if action == "exit":
            os._exit(3)
        if action == "fail":
            raise ValueError("out of order")
        if action == "start":
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        if action == "long":
            return "x" * 10**5, 0.0, False, False, {}
        if action in ("win", "lose"):
            return "over", 1.0 if action == "win" else 0.0, True, False, {}
        if action == "listed":
            return "seen", 0.0, False, False, {"admissible_commands": ["north", "south"]}
        return f"you said {action}", 0.0, False, False, {}

    def hang(self):
        Path(self.mark, "hangs").touch()
        time.sleep(600)


class Numbers(gymnasium.Env):
    """Discrete actions that start at 1, and an array to see."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    action_space = Discrete(3, start=1)
    observation_space = Box(0.0, 9.0, (2,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample() * 0, {}

    def step(self, action):
        return self.observation_space.sample() * 0 + action, 0.5, action == 3, False, {}

    def get_action_meanings(self):
        return ["Stay", "Go", "Stop"]
