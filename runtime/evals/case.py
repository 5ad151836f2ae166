"""Cases: a prompt, what is expected of the answer, and the checks that the answer must pass."""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from caesura.runtime.errors import UsageError
from caesura.runtime.events import Usage
from caesura.runtime.sdk.hooks import Prompt
from caesura.runtime.sdk.settings import Answer


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a check says of an answer. `reason` tells what was wrong, or what a judge thought."""

    passed: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Given:
    """What a check is given: the answer, the case that it answers, and how long it took.

    `answer` is an `Answer`, or what a function returned that is evaluated instead of an agent.
    """

    answer: Any
    case: "Case"
    seconds: float | None = None

    @property
    def text(self) -> str:
        """The text of the answer."""
        if isinstance(self.answer, Answer):
            return self.answer.text
        return self.answer if isinstance(self.answer, str) else repr(self.answer)

    @property
    def output(self) -> Any:
        """The output of the answer, of the agent's type."""
        return self.answer.output if isinstance(self.answer, Answer) else self.answer

    @property
    def calls(self) -> tuple[tuple[str, str], ...]:
        """The names and the JSON arguments of the calls, in order."""
        made = self.answer.calls if isinstance(self.answer, Answer) else ()
        return tuple((call.name, call.arguments) for call, _ in made)

    @property
    def usage(self) -> Usage:
        """The tokens and turns; a function has none."""
        return self.answer.usage if isinstance(self.answer, Answer) else Usage()


Said = Verdict | bool | None
Check = Callable[[Given], Said | Awaitable[Said]] | Callable[[Any], Any]
"""A check. A function of yours takes the answer, or a parameter named `given` for all of `Given`.

It returns whether the answer passes, or a `Verdict`, or nothing where it uses `assert`.
"""


@dataclass(frozen=True, slots=True)
class Checked:
    """What one check said. With an `error`, it said nothing, since it failed itself."""

    check: str
    passed: bool
    reason: str = ""
    error: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """One prompt, and what is expected of its answer.

    `name` is unique in a set of cases; without one it is the begin of the prompt. `expected` is
    what `Equals()` and judges compare with. A case without any checks is checked by `Equals()`.

        @pytest.mark.parametrize("case", cases("prices.yaml"))
        async def test_prices(case):
            case.check(await agent.run(case.prompt))

    Raises `UsageError` for a check that cannot be called.
    """

    prompt: Prompt
    expected: Any = None
    name: str = ""
    checks: Sequence[Check] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Name the case, and look at its checks."""
        if not self.name:
            text = self.prompt if isinstance(self.prompt, str) else str(self.prompt)
            object.__setattr__(self, "name", " ".join(text.split())[:60])
        object.__setattr__(self, "checks", tuple(checkable(self.checks, self.name)))

    @property
    def __name__(self) -> str:
        """The name, by which pytest calls a test of it."""
        return self.name

    def check(self, answer: Any, seconds: float | None = None) -> None:
        """Raise AssertionError, which tells all that is wrong, unless the answer passes.

        Raises `UsageError` for checks that are async, such as a `Judge`: await `check_async`.
        """
        given = Given(answer, self, seconds)
        self._assert(given, [_settled(check, given) for check in self._all()])

    async def check_async(self, answer: Any, seconds: float | None = None) -> None:
        """Do as `check` does, with checks that may be async."""
        given = Given(answer, self, seconds)
        self._assert(given, await self.checked(given))

    async def checked(self, given: Given, more: Sequence[Check] = ()) -> list[Checked]:
        """Return what the checks say of an answer, and `more` of them. Their errors are kept."""
        return [await _asked(check, given) for check in self._all(more)]

    def _all(self, more: Sequence[Check] = ()) -> Sequence[Check]:
        found = (*self.checks, *more)
        if found:
            return found
        from caesura.runtime.evals.checks import Equals  # which is a kind of check of a case

        return (Equals(),)

    def _assert(self, given: Given, said: Sequence[Checked]) -> None:
        wrong = [f"  {each.check}: {each.reason or 'it fails'}" for each in said if not each.passed]
        if not wrong:
            return
        head = f"{len(wrong)} of {len(said)} checks fail for the case {self.name!r}:"
        made = "".join(f"\n  {name} {arguments}" for name, arguments in given.calls)
        raise AssertionError(
            "\n".join([head, *wrong, f"prompt: {self.prompt}", f"answer: {given.text}"])
            + (f"\ncalls:{made}" if made else "")
        )


def checkable(checks: Iterable[Check], name: str) -> list[Check]:
    """Return the checks; raise `UsageError` for one that cannot be called."""
    if isinstance(checks, str) or not isinstance(checks, Iterable):
        raise UsageError(f"{name!r}: checks is a list, got {checks!r}")
    found = list(checks)
    for check in found:
        if inspect.isclass(check) or not callable(check):
            raise UsageError(
                f"{name!r}: {check!r} is no check: give one such as Contains('text'), or a function"
                " of the answer"
            )
    return found


def unique(cases: Iterable[Case]) -> list[Case]:
    """Return the cases; raise `UsageError` for none, and for two of the same name."""
    found = list(cases)
    names = [case.name for case in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"two cases have the name {twice!r}: give them names of their own")
    if not found:
        raise UsageError(f"there is nothing to evaluate: give cases, got {found!r}")
    return found


def _call(check: Check, given: Given) -> Any:
    """Call a check with what it takes."""
    if getattr(check, "takes_given", False):
        return check(given)
    named = list(inspect.signature(check).parameters)
    return check(given if named[:1] == ["given"] else given.answer)


def _settled(check: Check, given: Given) -> Checked:
    try:
        said = _call(check, given)
    except Exception as error:
        return _failed(check, error)
    if inspect.isawaitable(said):
        if inspect.iscoroutine(said):
            said.close()
        raise UsageError(f"the check {_name(check)} is async: write await case.check_async(answer)")
    return _checked(check, said)


async def _asked(check: Check, given: Given) -> Checked:
    try:
        said = _call(check, given)
        if inspect.isawaitable(said):
            said = await said
    except Exception as error:
        return _failed(check, error)
    return _checked(check, said)


def _checked(check: Check, said: Any) -> Checked:
    if isinstance(said, Verdict):
        return Checked(_name(check), said.passed, said.reason)
    if said is None or isinstance(said, bool):
        return Checked(_name(check), said is not False)
    reason = f"a check returns a bool, a Verdict or nothing, got {said!r}"
    return Checked(_name(check), False, reason, error=True)


def _failed(check: Check, error: Exception) -> Checked:
    if isinstance(error, AssertionError):
        return Checked(_name(check), False, str(error) or "its assertion fails")
    return Checked(_name(check), False, f"{type(error).__name__}: {error}", error=True)


def _name(check: Check) -> str:
    return str(getattr(check, "__name__", None) or check)
