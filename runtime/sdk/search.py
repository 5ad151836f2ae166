"""Search among branches of a session: the best of n, a majority's answer, a tree of runs.

All branches begin with the session's own tokens, which the engine has in its prefix cache.
"""

import asyncio
import inspect
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Generic

from caesura.runtime.errors import UsageError
from caesura.runtime.events import T
from caesura.runtime.sdk.hooks import Prompt
from caesura.runtime.sdk.session import Session
from caesura.runtime.sdk.settings import Answer
from caesura.scheduler.messages import Sampling
from caesura.tools.closing import AsyncClosing


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate(Generic[T]):
    """One branch and what it answered.

    Its `session` is closed, unless it is the chosen one's.
    """

    session: Session[T] = field(repr=False)
    prompt: Prompt
    answer: Answer[T] | None = None
    """None: the run failed."""
    score: float | None = None
    """None: the run failed, or its score did."""
    error: Exception | None = None
    """Why the run failed, or its score."""
    parent: "Candidate[T] | None" = field(default=None, repr=False)
    """In a tree: whose branch it is; None: one of the session that the search began with."""

    @property
    def depth(self) -> int:
        """Return how many runs lead here, this one included."""
        return 1 if self.parent is None else 1 + self.parent.depth


@dataclass(frozen=True, slots=True)
class Chosen(AsyncClosing, Generic[T]):
    """What a search found. Its `session` is open and goes on from the answer; close this, or it.

    `candidates` are all branches in the order in which they were made.
    """

    best: Candidate[T]
    candidates: tuple[Candidate[T], ...]

    @property
    def session(self) -> Session[T]:
        """The session that gave the best answer."""
        return self.best.session

    @property
    def answer(self) -> Answer[T]:
        """The best answer."""
        assert self.best.answer is not None
        return self.best.answer

    @property
    def score(self) -> float:
        """The best answer's score."""
        assert self.best.score is not None
        return self.best.score

    async def aclose(self) -> None:
        """Close the session."""
        await self.best.session.aclose()


Score = Callable[[Candidate[Any]], float | Awaitable[float]]
"""Says how good a candidate that has an answer is; more is better."""
Next = Callable[[Candidate[Any]], Prompt | None]
"""Says what the branches of a candidate are asked; None: it is a leaf."""


async def best_of(
    session: Session[T],
    prompt: Prompt,
    n: int = 8,
    *,
    score: Score,
    sampling: Sampling | None = None,
    concurrency: int = 64,
) -> Chosen[T]:
    """Ask `n` branches of a session the same, and choose the answer with the highest `score`.

    Of equal scores the first branch's is chosen. `session` stays as it is. `sampling` replaces its
    settings in the branches, and where there is a seed each has another one; without one, branches
    differ only at a temperature above 0. `concurrency` bounds the runs at the same time.

    A branch that fails has an `error`, and the others go on; if all fail, the first one's error is
    raised. Raises `UsageError` for counts below 1, and while a run of the session is under way.
    """
    _check(n=n, concurrency=concurrency)
    async with _Search[T](score, concurrency) as search:
        await search.grow([(each, prompt, None) for each in session.fork(n, sampling=sampling)])
        return search.choose(search.made)


async def majority(
    session: Session[T],
    prompt: Prompt,
    n: int = 8,
    *,
    key: Callable[[Answer[T]], Hashable] = lambda answer: answer.text.strip(),
    sampling: Sampling | None = None,
    concurrency: int = 64,
) -> Chosen[T]:
    """Ask `n` branches of a session the same, and choose the answer that most of them gave.

    Answers with equal `key` are one; without it, that is their text. A candidate's score is its
    share of the branches that answered. Of equal shares the first is chosen. Otherwise as
    `best_of`.
    """
    _check(n=n, concurrency=concurrency)
    async with _Search[T](lambda made: 0.0, concurrency) as search:
        await search.grow([(each, prompt, None) for each in session.fork(n, sampling=sampling)])
        keys = [None if each.answer is None else (key(each.answer),) for each in search.made]
        votes = Counter(each for each in keys if each is not None)
        search.made = [
            made if own is None else replace(made, score=votes[own] / votes.total())
            for made, own in zip(search.made, keys, strict=True)
        ]
        return search.choose(search.made)


async def tree_search(
    session: Session[T],
    prompt: Prompt,
    *,
    score: Score,
    then: Next,
    width: int = 4,
    keep: int = 2,
    depth: int = 3,
    sampling: Sampling | None = None,
    concurrency: int = 64,
) -> Chosen[T]:
    """Search a tree of runs, level by level (a beam search), and choose the best leaf.

    At the first level `width` branches of the session are asked `prompt`. Each of the `keep` best
    of a level gets `width` branches of its own, which are asked what `then(candidate)` says. A
    candidate for which that is None is a leaf, and so are all at level `depth`. Whatever tools
    returned on the way to a candidate is in the history of its branches, and no call of it is made
    again. What a tool has done outside of the session stays done, though.

    Otherwise as `best_of`; if all branches of a level fail, the leaves before it count.
    """
    _check(width=width, keep=keep, depth=depth, concurrency=concurrency)
    leaves: list[Candidate[T]] = []
    async with _Search[T](score, concurrency) as search:
        wanted: list[_Wanted[T]] = [
            (each, prompt, None) for each in session.fork(width, sampling=sampling)
        ]
        for level in range(1, depth + 1):
            grown = _ranked(await search.grow(wanted))
            goes_on: list[tuple[Candidate[T], Prompt]] = []
            for each in grown:
                asked = None if level == depth else then(each)
                if asked is None:
                    leaves.append(each)
                else:
                    goes_on.append((each, asked))
            del goes_on[keep:]
            wanted = [
                (branch, asked, each)
                for each, asked in goes_on
                for branch in each.session.fork(width, sampling=sampling)
            ]
            await search.close_but([*_ranked(leaves)[:1], *(each for each, _ in goes_on)])
            if not wanted:
                break
        return search.choose(leaves)


_Wanted = tuple[Session[T], Prompt, Candidate[T] | None]


class _Search(Generic[T]):
    """The branches of a search, which are closed at its end but for the chosen one."""

    def __init__(self, score: Score, concurrency: int) -> None:
        self.made: list[Candidate[T]] = []
        self._score = score
        self._slots = asyncio.Semaphore(concurrency)
        self._open: list[Session[T]] = []
        self._chosen: Session[T] | None = None

    async def __aenter__(self) -> "_Search[T]":
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._close([each for each in self._open if each is not self._chosen])

    async def grow(self, wanted: Sequence[_Wanted[T]]) -> list[Candidate[T]]:
        """Run branches; return those that have an answer and a score, in the same order."""
        self._open += [session for session, _, _ in wanted]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._run(*each)) for each in wanted]
        made = [task.result() for task in tasks]
        self.made += made
        return [each for each in made if each.score is not None]

    async def close_but(self, candidates: Sequence[Candidate[T]]) -> None:
        """Close all sessions but those of some candidates, so that the engine holds none for them.

        What branches share with a session that is closed stays in the prefix cache.
        """
        kept = [each.session for each in candidates]
        await self._close([each for each in self._open if each not in kept])
        self._open = kept

    def choose(self, among: Iterable[Candidate[T]]) -> Chosen[T]:
        """Return the best, whose session stays open. Raises the first error if there is none."""
        ranked = _ranked([each for each in among if each.score is not None])
        if not ranked:
            raise next(each.error for each in self.made if each.error is not None)
        self._chosen = ranked[0].session
        return Chosen(ranked[0], tuple(self.made))

    async def _run(
        self, session: Session[T], prompt: Prompt, parent: Candidate[T] | None
    ) -> Candidate[T]:
        made: Candidate[T] = Candidate(session=session, prompt=prompt, parent=parent)
        try:
            async with self._slots:
                made = replace(made, answer=await session.run(prompt))
                value = self._score(made)
                return replace(
                    made, score=float(await value if inspect.isawaitable(value) else value)
                )
        except Exception as error:
            return replace(made, error=error)

    async def _close(self, sessions: Iterable[Session[T]]) -> None:
        async with AsyncExitStack() as stack:  # each is closed, whatever another one raises
            for session in sessions:
                stack.push_async_callback(session.aclose)


def _ranked(candidates: Iterable[Candidate[T]]) -> list[Candidate[T]]:
    """Return candidates by score, the best first; equal ones stay in their order."""
    return sorted(candidates, key=lambda each: each.score or 0.0, reverse=True)


def _check(**counts: int) -> None:
    for name, value in counts.items():
        if type(value) is not int or value < 1:
            raise UsageError(f"{name} must be a whole number from 1, got {value!r}")
