"""TRL over an agent: a `rollout_func` of `GRPOTrainer`, with or without a TRL environment.

TRL calls methods of an environment as tools in a loop of its own, and generates anew behind each
call. Here the agent runs the same environment in a session, which pauses for the call.
"""

import asyncio
import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

from caesura.runtime.errors import UsageError
from caesura.runtime.sdk.agent import Agent
from caesura.runtime.sdk.episodes import Episode, Reward, collect
from caesura.runtime.trajectories.adapters.sequences import to_trl
from caesura.runtime.trajectories.trajectory import REWARD
from caesura.tools import Tool, tool
from caesura.tools.context import current
from caesura.tools.run_view import Context
from caesura.tools.tool import in_thread

_NO_TOOLS = ("reset", "get_reward")


def trl_tools(environment: type) -> list[Tool]:
    """Return the tools of a TRL environment, for the agent of `trl_rollouts`.

    They are those that TRL finds: its public methods but `reset` and `get_reward`. Each calls the
    environment of its run, the run's `deps`. Raises `UsageError` for what is no class with methods,
    and TypeError for a method that cannot be called from JSON.
    """
    if not isinstance(environment, type):
        raise UsageError(f"trl_tools takes the class of an environment, got {environment!r}")
    made = [
        _method(environment, name)
        for name, _ in inspect.getmembers(environment, inspect.isfunction)
        if not name.startswith("_") and name not in _NO_TOOLS
    ]
    if not made:
        raise UsageError(f"{environment.__qualname__} has no public method that could be a tool")
    return made


def _method(environment: type, name: str) -> Tool:
    async def call(**arguments: Any) -> Any:
        result = await in_thread(getattr(current().view().deps, name), **arguments)
        return await result if inspect.isawaitable(result) else result

    described = tool(partial(getattr(environment, name), None))  # without self
    needs: Any = Context
    return replace(described, call=call, function=call, contexts=(needs[environment],))


def trl_rollouts(
    agent: Agent[Any, Any],
    environment: Callable[[], Any] | None = None,
    *,
    rows: Iterable[Mapping[str, Any]] = (),
    reward: Reward | None = None,
    concurrency: int = 64,
) -> Callable[[Sequence[Any], Any], dict[str, Any]]:
    """Return a `rollout_func` for TRL's `GRPOTrainer`: the agent answers each prompt once.

    A prompt is a text, or one message of a user; other messages are the agent's `instructions`.
    `agent` records `trajectories`, and its model is the one that is trained.

    `environment` makes a TRL environment for each prompt. It is what would be TRL's
    `environment_factory`, which is then not given to the trainer. The agent has its tools by
    `trl_tools`. `reset` gets the row of `rows` that has the prompt, or else the prompt alone, and
    what it returns stands behind the prompt.

    `reward` says what an episode is worth, as for `collect`; by default it is what the
    environment's `get_reward` returns. It reaches TRL by `trl_reward` as a reward function; None
    where a run failed.

    The returned function raises `UsageError` for other prompts, and the error of an episode in
    which nothing was sampled.
    """
    known = {_key(row["prompt"]): dict(row) for row in rows}

    def rollout(prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        texts = [_text(each) for each in prompts]
        deps, paid = None, reward
        if environment is not None:
            deps = [environment() for _ in prompts]
            for place, (each, prompt) in enumerate(zip(deps, prompts, strict=True)):
                seen = each.reset(**known.get(_key(prompt), {"prompt": prompt}))
                texts[place] += "" if seen is None else seen
            if paid is None and all(hasattr(each, "get_reward") for each in deps):
                paid = _of_environment
        work = collect(agent, texts, deps=deps, reward=paid, concurrency=concurrency)
        with ThreadPoolExecutor(1) as thread:  # TRL may call from a thread that has a loop
            episodes = thread.submit(asyncio.run, work).result()
        for episode in episodes:
            if episode.trajectory is None:
                raise episode.error or UsageError(f"nothing was sampled for {episode.prompt!r}")
        made = to_trl([each.trajectory for each in episodes if each.trajectory is not None])
        return made if paid is None else {**made, REWARD: [each.reward for each in episodes]}

    return rollout


def trl_reward(
    completions: Sequence[Any], reward: Sequence[float | None], **_: Any
) -> list[float | None]:
    """Return the rewards of `trl_rollouts`, as a reward function for TRL."""
    return list(reward)


def _of_environment(episode: Episode[Any]) -> Any:
    return episode.deps.get_reward()


def _key(prompt: Any) -> str:
    return json.dumps(prompt, sort_keys=True, default=str)


def _text(prompt: Any) -> str:
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, Sequence) and len(prompt) == 1 and isinstance(prompt[0], Mapping):
        content = prompt[0].get("content")
        if prompt[0].get("role") == "user" and isinstance(content, str):
            return content
    raise UsageError(
        "a prompt of trl_rollouts must be a text or one message of a user with a text, got"
        f" {str(prompt)[:80]!r}: give a system message as the agent's instructions"
    )
