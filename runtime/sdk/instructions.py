"""The instructions of an agent: a text, or a function that makes it for a session."""

import inspect
import typing
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol

from caesura.runtime.errors import UsageError
from caesura.tools.run_view import Context, Deps, misfit


class AsksContext(Protocol[Deps]):
    """A function that makes instructions from the context of a session."""

    def __call__(self, context: Context[Deps], /) -> str | Awaitable[str]:
        """Return the instructions."""
        ...


AnyInstructions = str | Callable[[], str | Awaitable[str]] | AsksContext[Deps]
"""Instructions as an agent takes them."""


class Instructions:
    """What a session of an agent begins with, if the agent has any instructions.

    A function is asked once, before a session's first turn: what the model was told stays as it is,
    and so does the KV cache of it. `more` follows the text. Raises `UsageError` for anything but a
    text and a function of a context or of nothing.
    """

    def __init__(self, given: AnyInstructions[Any] | None, more: str | None = None) -> None:
        if not (given is None or isinstance(given, str) or callable(given)):
            raise UsageError(
                f"instructions are a text or a function that returns one, got {given!r}"
            )
        self.given = given
        self._more = more
        self._takes = [] if given is None or isinstance(given, str) else _taken(given)

    @property
    def text(self) -> str | None:
        """The text that was given, or None if there is none or a function makes it."""
        return self.given if isinstance(self.given, str) else None

    @property
    def fixed(self) -> str | None:
        """What every session is told; None for nothing, and where a function makes it."""
        return None if callable(self.given) else self._with_more(self.given)

    @property
    def contexts(self) -> tuple[Any, ...]:
        """The annotation of the function's context, if it has one."""
        return tuple(each for each in self._takes if each is not None)

    async def told(self, context: Context[Any]) -> str | None:
        """Return what a session is told, or None for nothing.

        Raises what the function raises, and `UsageError` if it returns no text.
        """
        text: Any = self.given
        if callable(text):
            text = text(context) if self._takes else text()
            if inspect.isawaitable(text):
                text = await text
            if not isinstance(text, str):
                raise UsageError(
                    f"the instructions of {_name(self.given)} must be a text, got {text!r}"
                )
        return self._with_more(text)

    def _with_more(self, text: str | None) -> str | None:
        parts = [each for each in (text, self._more) if each is not None]
        return "\n\n".join(filter(None, parts)) if parts else None


def check_deps(deps: Any, wanted: Iterable[tuple[str, Any]]) -> None:
    """Raise `UsageError` unless the dependencies are what functions want.

    `wanted` are pairs of a function's name and the annotation of its context.
    """
    for name, hint in wanted:
        if (kind := misfit(deps, hint)) is not None:
            got = "none" if deps is None else type(deps).__name__
            raise UsageError(
                f"{name} needs dependencies of type {kind}, got {got}: write agent.run(prompt,"
                " deps=...), or agent.session(deps=...)"
            )


def _taken(function: Callable[..., Any]) -> list[Any]:
    """Return the annotation of the function's one parameter, None without one; else nothing."""
    named = inspect.signature(function).parameters.values()
    needed = [each for each in named if each.default is each.empty]
    if len(needed) > 1 or any(each.kind is each.KEYWORD_ONLY for each in needed):
        raise UsageError(
            f"the instructions of {_name(function)} may take a context, and need"
            f" {', '.join(each.name for each in needed)}"
        )
    if not needed:
        return []
    called = function if inspect.isroutine(function) else getattr(function, "__call__", None)  # noqa: B004
    try:
        hints = typing.get_type_hints(called)
    except (NameError, TypeError):
        hints = {}
    return [hints.get(needed[0].name)]


def _name(function: Any) -> str:
    return str(getattr(function, "__qualname__", None) or repr(function))
