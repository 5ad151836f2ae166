"""Evaluations: an agent answers cases, several times each, and the answers are checked."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from caesura.runtime.errors import UsageError
from caesura.runtime.evals.case import Case, Check, Given, checkable, unique
from caesura.runtime.evals.report import CaseResult, Report, Sample
from caesura.runtime.sdk.agent import Agent
from caesura.runtime.sdk.hooks import Prompt
from caesura.runtime.sdk.settings import Answer
from caesura.tools.tool import in_thread

Subject = Agent[Any] | Callable[[Prompt], Awaitable[Any]] | Callable[[Prompt], Any]
"""What is evaluated: an agent, or a function of a prompt, which may return an `Answer`."""
Told = Callable[[Case, Sample], object]


class Evaluation:
    """One evaluation. `report` has what is done, also while it runs and behind an interruption.

    `samples` answers are made for each case, each in a session of its own, which share the KV cache
    of their prompt. Where an agent has a seed, each sample has another one. `checks` are made of
    all cases, beside their own. `concurrency` bounds the answers at the same time. `told` is called
    with each sample.

    An error of one answer, or of one check, is told in its sample, and the others go on.

    Raises `UsageError` for no cases, two of the same name, and counts that are not positive.
    """

    def __init__(
        self,
        subject: Subject,
        cases: Iterable[Case],
        *,
        checks: Sequence[Check] = (),
        samples: int = 1,
        concurrency: int = 8,
        told: Told | None = None,
    ) -> None:
        for name, value in (("samples", samples), ("concurrency", concurrency)):
            if type(value) is not int or value < 1:
                raise UsageError(f"{name} must be a whole number from 1, got {value!r}")
        if not callable(subject) and not isinstance(subject, Agent):
            raise UsageError(f"an agent or a function is evaluated, got {subject!r}")
        self.cases = unique(cases)
        self.samples = samples
        self._subject = subject
        self._checks = checkable(checks, "checks")
        self._concurrency = concurrency
        self._told = told
        self._done: dict[str, dict[int, Sample]] = {case.name: {} for case in self.cases}
        self._began: float | None = None
        self._seconds = 0.0

    @property
    def report(self) -> Report:
        """What is done so far."""
        results = []
        for case in self.cases:
            done = self._done[case.name]
            if done:
                samples = tuple(done[number] for number in sorted(done))
                results.append(CaseResult(case.name, samples, case.metadata))
        wanted = len(self.cases) * self.samples
        complete = sum(len(done) for done in self._done.values()) == wanted
        return Report(tuple(results), _name(self._subject), self._seconds, complete)

    async def run(self) -> Report:
        """Make the answers that are not done yet, and return the report.

        Where it is cancelled, `report` keeps what is done, and a further `run` makes the rest.
        """
        began, before = time.monotonic(), self._seconds
        # The first sample of each case comes first, so that the others find its prompt cached.
        jobs = [(case, n) for n in range(self.samples) for case in self.cases]
        left = iter([(case, n) for case, n in jobs if n not in self._done[case.name]])

        async def work() -> None:
            for case, number in left:
                sample = await self._sample(case, number)
                self._done[case.name][number] = sample
                self._seconds = before + time.monotonic() - began
                if self._told is not None:
                    self._told(case, sample)

        async with asyncio.TaskGroup() as group:
            for _ in range(self._concurrency):
                group.create_task(work())
        return self.report

    async def _sample(self, case: Case, number: int) -> Sample:
        began = time.monotonic()
        try:
            answer = await self._asked(case.prompt, number)
        except Exception as error:
            seconds = time.monotonic() - began
            return Sample(False, seconds=seconds, error=f"{type(error).__name__}: {error}")
        seconds = time.monotonic() - began
        given = Given(answer, case, seconds)
        checks = tuple(await case.checked(given, self._checks))
        usage = given.usage
        return Sample(
            all(each.passed for each in checks),
            checks,
            given.text,
            given.calls,
            seconds,
            usage.prompt_tokens,
            usage.completion_tokens,
            usage.turns,
        )

    async def _asked(self, prompt: Prompt, number: int) -> Any:
        if isinstance(self._subject, Agent):
            return await _sampled(self._subject, prompt, number)
        if inspect.iscoroutinefunction(self._subject):
            return await self._subject(prompt)
        answer = await in_thread(self._subject, prompt)
        return await answer if inspect.isawaitable(answer) else answer


async def _sampled(agent: Agent[Any], prompt: Prompt, number: int) -> Answer[Any]:
    """Return an answer of an agent, by a branch: where the agent has a seed, that has another.

    Where a tool needs approval, `Agent.run` sees to it that a person decides.
    """
    if number == 0 or any(tool.approval for tool in agent.tools):
        return await agent.run(prompt)
    async with agent.session() as begin, begin.fork(number + 1)[number] as branch:
        return await branch.run(prompt)


async def evaluate(
    subject: Subject,
    cases: Iterable[Case],
    *,
    checks: Sequence[Check] = (),
    samples: int = 1,
    concurrency: int = 8,
    told: Told | None = None,
) -> Report:
    """Evaluate an agent, or a function, and return the report; see `Evaluation`."""
    evaluation = Evaluation(
        subject, cases, checks=checks, samples=samples, concurrency=concurrency, told=told
    )
    return await evaluation.run()


def _name(subject: Subject) -> str:
    if isinstance(subject, Agent):
        return subject.name or "agent"
    return str(getattr(subject, "__name__", None) or type(subject).__name__)
