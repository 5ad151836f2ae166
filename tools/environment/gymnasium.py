"""Any Gymnasium environment whose actions and observations can be put into words.

Actions are a Discrete space, each with a name, or a Text space. The observation is the text that
`render` draws, if the environment supports that, else the observation itself. Terminal colours
become words: in some games only the colour shows where things are.
"""

import importlib
import inspect
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
from gymnasium.envs.registration import load_env_creator
from gymnasium.spaces import Discrete, Text

from caesura.tools.environment.child import View

_CODE = re.compile(r"\x1b\[([\d;]*)m")
_OTHER = re.compile(r"\x1b\[[\d;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")
_COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")


def worded(text: str) -> str:
    """Return the text with `[red S]` for a red S, or S on red; other control codes are removed."""
    pieces = _CODE.split(text)
    found = [_OTHER.sub("", pieces[0])]
    colours: list[str] = []
    for codes, piece in zip(pieces[1::2], pieces[2::2], strict=True):
        for code in (int(each or 0) for each in codes.split(";")):
            if code == 0:
                colours = []
            elif code // 10 in (3, 4, 9, 10) and code % 10 < len(_COLOURS):
                colours.append(_COLOURS[code % 10])
        plain = _OTHER.sub("", piece)
        found.append(f"[{' '.join(colours)} {plain}]" if colours and plain else plain)
    return "".join(found)


@dataclass(frozen=True, slots=True)
class Meaning:
    """What the environment's documentation says and its code does not."""

    actions: tuple[str, ...]
    task: str
    won_above: float = 0.0


KNOWN = {
    "FrozenLake": Meaning(
        ("left", "down", "right", "up"),
        "Walk from S to G over the ice, F, without falling into a hole, H. You are on the red "
        "letter. Where the ice is slippery, you may slide to a side.",
    ),
    "Taxi": Meaning(
        ("south", "north", "east", "west", "pick up", "drop off"),
        "Drive the taxi, which is yellow and when taken green, to the passenger at the blue "
        "letter, pick them up, and drop them off at the magenta letter. A | is a wall.",
    ),
    "CliffWalking": Meaning(
        ("up", "right", "down", "left"),
        "Walk from x, where you are, to T without stepping on the cliff, C.",
        won_above=-2.0,
    ),
}


class GymnasiumGames:
    """Games by number, the seed of `reset`; `options` are `Settings` as JSON."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Make the environment. Raises ValueError, or what Gymnasium raises."""
        self._env = made(options["id"], options["kwargs"])
        known = KNOWN.get(self._env.spec.name if self._env.spec else "", Meaning((), ""))
        self._seed = int(options["seed"])
        self._task = options["task"] or known.task
        won_above = options["won_above"]
        self._won_above = known.won_above if won_above is None else float(won_above)
        self._draws = self._env.render_mode == "ansi"
        self._names = names_of(self._env, options["actions"] or known.actions)
        self._can: list[str] = []

    def reset(self, number: int) -> View:
        """Start the game with this seed."""
        observation, info = self._env.reset(seed=self._seed + number)
        task = [f"Your task is to: {self._task}"] if self._task else []
        return View(
            text="\n".join([self._seen(observation), *task]),
            actions=self._allowed(info),
            outcome=None,
        )

    def step(self, action: str) -> View:
        """Perform an action by its name; an unknown action has no effect."""
        chosen = self._chosen(action)
        if chosen is None:
            return View(text="Nothing happens.", actions=self._can, outcome=None)
        observation, reward, terminated, truncated, info = self._env.step(chosen)
        won = terminated and float(reward) > self._won_above
        return View(
            text=f"{self._seen(observation)}\nReward: {float(reward):g}",
            actions=self._allowed(info),
            outcome=None if not (terminated or truncated) else "won" if won else "lost",
        )

    def _chosen(self, action: str) -> Any:
        """Return the action in the environment's form, or None if it is unknown."""
        space = self._env.action_space
        if isinstance(space, Text):
            return action if space.contains(action) else None
        words = " ".join(action.lower().split()).strip(" .!\"'`")
        lowered = [name.lower() for name in self._names]
        return int(space.start) + lowered.index(words) if words in lowered else None  # type: ignore[attr-defined]

    def _seen(self, observation: Any) -> str:
        drawn = self._env.render() if self._draws else None
        if isinstance(drawn, str):
            return worded(drawn).strip("\n")
        return worded(observation) if isinstance(observation, str) else _as_json(observation)

    def _allowed(self, info: Mapping[str, Any]) -> list[str]:
        """Return the possible actions: those that the environment lists, or all names."""
        self._can = list(self._names)
        listed = info.get("admissible_commands")
        mask = info.get("action_mask")
        if isinstance(listed, Sequence) and not isinstance(listed, str):
            self._can = [str(each) for each in listed]
        elif mask is not None and len(mask) == len(self._names):
            self._can = [each for each, may in zip(self._names, mask, strict=True) if may]
        return self._can


def made(name: str, kwargs: Mapping[str, Any]) -> "gymnasium.Env[Any, Any]":
    """Return the environment for a registered id, "module:Id", or "module:Class" of an Env."""
    module, _, rest = name.rpartition(":")
    found = getattr(importlib.import_module(module), rest, None) if module else None
    if inspect.isclass(found) and issubclass(found, gymnasium.Env):
        return found(**{**_drawn_with_letters(found), **kwargs})
    spec = gymnasium.spec(name)
    creator: Any = spec.entry_point
    if isinstance(creator, str):
        creator = load_env_creator(creator)
    if "render_mode" not in spec.kwargs:
        kwargs = {**_drawn_with_letters(creator), **kwargs}
    return gymnasium.make(name, **kwargs)


def names_of(env: "gymnasium.Env[Any, Any]", given: Sequence[str]) -> tuple[str, ...]:
    """Return the names of a Discrete space's actions, or a description of a Text space.

    Raises ValueError for other spaces, and for a wrong number of names.
    """
    space = env.action_space
    if isinstance(space, Text):
        return (f"write a text of up to {space.max_length} characters",)
    if not isinstance(space, Discrete):
        raise ValueError(f"its actions are {space}: only Discrete and Text are supported")
    meanings = getattr(env.unwrapped, "get_action_meanings", None)
    numbers = range(int(space.start), int(space.start) + int(space.n))
    names = given or (meanings() if meanings else tuple(str(number) for number in numbers))
    if len(names) != space.n:
        raise ValueError(f"it has {space.n} actions, got {len(names)} names for them")
    return tuple(names)


def _drawn_with_letters(creator: Any) -> dict[str, Any]:
    """Return the argument that makes an environment draw with letters, if it supports that."""
    modes = getattr(creator, "metadata", {}).get("render_modes") or ()
    return {"render_mode": "ansi"} if "ansi" in modes else {}


def _as_json(observation: Any) -> str:
    """Return an observation as JSON, with arrays as lists."""
    return json.dumps(observation, default=_plain)


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)
