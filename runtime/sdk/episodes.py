"""Episodes: an agent answers prompts many times at once, and each answer keeps its trajectory."""

import asyncio
import inspect
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic

from caesura.runtime.errors import UsageError
from caesura.runtime.events import T
from caesura.runtime.sdk.agent import Agent
from caesura.runtime.sdk.hooks import Prompt
from caesura.runtime.sdk.session import Session
from caesura.runtime.sdk.settings import Answer
from caesura.runtime.trajectories.trajectory import REWARD, Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode(Generic[T]):
    """One session of an agent that was given one prompt."""

    prompt: Prompt
    deps: Any = None
    """The dependencies that it was given."""
    answer: Answer[T] | None = None
    """None: the run failed."""
    trajectory: Trajectory | None = None
    """What was sampled, also by a run that failed later; None: nothing was, or it is not known."""
    reward: float | None = None
    """The trajectory's too; None: the run or the reward failed, or no reward was asked for."""
    error: Exception | None = None
    """Why the run failed, or the reward, or why the trajectory is not known."""


Reward = Callable[[Episode[Any]], float | Awaitable[float]]
"""Says what an episode that has an answer is worth."""


async def collect(
    agent: Agent[T, Any],
    prompts: Iterable[Prompt],
    *,
    samples: int = 1,
    reward: Reward | None = None,
    deps: Callable[[], Any] | Sequence[Any] | None = None,
    concurrency: int = 64,
) -> list[Episode[T]]:
    """Let an agent answer each prompt `samples` times, each time in a session of its own.

    Return the episodes in the order of the prompts; those of one prompt stand together. `agent`
    records `trajectories`. Where it has a seed, each episode of equal prompts has another one.
    `deps` makes the dependencies of an episode, or has one item for each. `concurrency` bounds the
    sessions at the same time.

    An error of one run, of `reward` or of `deps` is told in its episode, and the others go on.
    Raises `UsageError` for an agent without trajectories, for no prompts, for counts below 1, and
    for another number of `deps` than of episodes.
    """
    _check(agent, prompts, "collect", samples=samples, concurrency=concurrency)
    wanted = [prompt for prompt in prompts for _ in range(samples)]
    if not wanted:
        raise UsageError(f"there is nothing to collect: give prompts, got {wanted!r}")
    deps_of = _makers(deps, len(wanted))
    jobs = list(_jobs(wanted, 1))
    made: list[Episode[T] | None] = [None] * len(jobs)
    # The first of each prompt comes first, so that the others find the prompt cached.
    left = iter(sorted(enumerate(jobs), key=lambda job: job[1][1]))

    async def work() -> None:
        for place, (prompt, number) in left:
            episode = await _episode(agent, prompt, number, deps_of[place])
            made[place] = await _rewarded(episode, reward)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(concurrency, len(jobs))):
            group.create_task(work())
    return [each for each in made if each is not None]


class Episodes(Generic[T]):
    """Episodes that run while others are taken; see `collecting`."""

    def __init__(self) -> None:
        self._ended: asyncio.Queue[Episode[T] | None] = asyncio.Queue()
        """None for each worker that found no prompt any more."""
        self.workers = 0

    async def take(self, count: int) -> list[Episode[T]]:
        """Return as many episodes, in the order in which they end; fewer if no more are left."""
        _check_count("count", count)
        taken: list[Episode[T]] = []
        while len(taken) < count and (self.workers or not self._ended.empty()):
            if (one := await self._ended.get()) is None:
                self.workers -= 1
            else:
                taken.append(one)
        return taken

    def end(self, episode: Episode[T] | None) -> None:
        """Add an episode that has ended; None: one worker is done."""
        self._ended.put_nowait(episode)


@asynccontextmanager
async def collecting(
    agent: Agent[T, Any],
    prompts: Iterable[Prompt],
    *,
    samples: int = 1,
    reward: Reward | None = None,
    deps: Callable[[], Any] | None = None,
    concurrency: int = 64,
) -> AsyncIterator[Episodes[T]]:
    """Let an agent answer prompts while the context lasts, and take episodes as they end.

    The arguments are those of `collect`; `prompts` may be endless, and each is drawn when a session
    is free. Episodes that a `take` has not waited for run on, with their tokens: also over a change
    of weights by `updating`, which freezes them. The next `take` returns them. Those that are
    unfinished at the context's end are cancelled.

    Raises `UsageError` as `collect` does.
    """
    _check(agent, prompts, "collecting", samples=samples, concurrency=concurrency)
    made: Episodes[T] = Episodes()
    jobs = _jobs(prompts, samples)

    async def work() -> None:
        try:
            for prompt, number in jobs:
                episode = await _episode(agent, prompt, number, deps)
                made.end(await _rewarded(episode, reward))
        finally:
            made.end(None)

    async with asyncio.TaskGroup() as group:
        made.workers = concurrency
        tasks = [group.create_task(work()) for _ in range(concurrency)]
        try:
            yield made
        finally:
            for task in tasks:
                task.cancel()


def _jobs(prompts: Iterable[Prompt], samples: int) -> Iterator[tuple[Prompt, int]]:
    """Yield prompts, each with its number among those that are equal."""
    earlier: Counter[str] = Counter()
    for prompt in prompts:
        for _ in range(samples):
            yield prompt, earlier[repr(prompt)]
            earlier[repr(prompt)] += 1


def _check(agent: Agent[Any, Any], prompts: Any, name: str, **counts: int) -> None:
    for each, value in counts.items():
        _check_count(each, value)
    if isinstance(prompts, str | bytes):
        raise UsageError(f"{name} takes a list of prompts, got the text {prompts[:40]!r}")
    if not agent.trajectories:
        raise UsageError(
            f"{name} needs an agent that records: write Agent(..., trajectories=True), got"
            f" trajectories={agent.trajectories!r}"
        )


def _check_count(name: str, value: int) -> None:
    if type(value) is not int or value < 1:
        raise UsageError(f"{name} must be a whole number from 1, got {value!r}")


def _makers(
    deps: Callable[[], Any] | Sequence[Any] | None, count: int
) -> Sequence[Callable[[], Any] | None]:
    """Return what makes the dependencies of each episode. Raises `UsageError`."""
    if deps is None or callable(deps):
        return [deps] * count
    if len(deps) != count:
        raise UsageError(
            f"deps must be a function, or have one item for each of the {count} episodes, got"
            f" {len(deps)}"
        )
    return [partial(deps.__getitem__, place) for place in range(count)]


async def _episode(
    agent: Agent[T, Any], prompt: Prompt, number: int, deps: Callable[[], Any] | None
) -> Episode[T]:
    """Run the episode of a number among those of equal prompts: its seed is its branch's."""
    made: Episode[T] = Episode(prompt=prompt)
    try:
        if deps is not None:
            made = replace(made, deps=deps())
        async with (
            agent.session(deps=made.deps) as begin,
            begin.fork(number + 1)[number] as session,
        ):
            return await _played(session, made)
    except Exception as error:
        return replace(made, error=error)


async def _played(session: Session[T], made: Episode[T]) -> Episode[T]:
    try:
        made = replace(made, answer=await session.run(made.prompt))
    except Exception as error:
        made = replace(made, error=error)
    try:
        trajectory = await session.trajectory()
    except UsageError as error:  # its tokens are not known
        return replace(made, error=made.error or error)
    return replace(made, trajectory=trajectory if trajectory.branches else None)


async def _rewarded(made: Episode[T], reward: Reward | None) -> Episode[T]:
    if reward is None or made.answer is None:
        return made
    try:
        value = reward(made)
        paid = float(await value if inspect.isawaitable(value) else value)
        if (trajectory := made.trajectory) is not None:
            trajectory = replace(trajectory, rewards={**trajectory.rewards, REWARD: paid})
        return replace(made, reward=paid, trajectory=trajectory)
    except Exception as error:
        return replace(made, error=error)
