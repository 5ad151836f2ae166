"""Checks of a server by client libraries: what one is, and how it is run."""

import asyncio
import inspect
import json
import os
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, TextIO

SECONDS = 240
"""The longest that one check may take; a loaded machine is slow."""


@dataclass(frozen=True)
class Server:
    """A server under test: its address without `/v1`, and its model's name."""

    url: str
    model: str

    @property
    def v1(self) -> str:
        return f"{self.url}/v1"


@dataclass(frozen=True)
class Check:
    """A function that fails unless a library's feature works on a server."""

    library: str
    feature: str
    run: Callable[[Server], Any]


@dataclass(frozen=True)
class Result:
    """How a check ended: `pass`, `fail` or `ignored`; and why, if it did not pass."""

    library: str
    feature: str
    outcome: str
    reason: str = ""


class Ignored(Exception):
    """A field was taken, and had no effect."""


CHECKS: list[Check] = []


def check(library: str, feature: str) -> Callable[[Callable[[Server], Any]], Callable[..., Any]]:
    """Register a function, plain or async, as a check."""

    def register(run: Callable[[Server], Any]) -> Callable[..., Any]:
        CHECKS.append(Check(library, feature, run))
        return run

    return register


def check_each(
    apis: Mapping[str, Callable[[Server], Any]], feature: str
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a check of several APIs, which gets what builds the library's model first."""

    def register(run: Callable[..., Any]) -> Callable[..., Any]:
        for library, build in apis.items():
            check(library, feature)(partial(run, build))
        return run

    return register


class Raised:
    """The error that a block has raised."""

    error: Any = None


@contextmanager
def raises(kind: type[Exception]) -> Iterator[Raised]:
    """Fail unless the block raises an error of this class."""
    raised = Raised()
    try:
        yield raised
    except kind as error:
        raised.error = error
        return
    raise AssertionError("no error")


def honoured(condition: Any, what: str) -> None:
    """Raise `Ignored` unless a field had its effect."""
    if not condition:
        raise Ignored(what)


def equal(found: Any, expected: Any) -> None:
    """Fail with both values unless they are equal."""
    assert found == expected, f"{found!r} instead of {expected!r}"


def run_all(server: Server, checks: Iterable[Check], output: TextIO) -> None:
    """Run checks one after the other; write each result as a line of JSON."""
    for each in checks:
        print(json.dumps(asdict(_result(each, server))), file=output, flush=True)


def _result(each: Check, server: Server) -> Result:
    outcome, reason = "pass", ""
    try:
        asyncio.run(_run(each, server))
    except Ignored as ignored:
        outcome, reason = "ignored", str(ignored)
    except Exception as error:
        outcome, reason = "fail", _reason(error)
        if os.environ.get("CLIENTS_TRACEBACKS"):
            traceback.print_exc()
    return Result(each.library, each.feature, outcome, reason)


async def _run(each: Check, server: Server) -> None:
    async with asyncio.timeout(SECONDS):
        if inspect.iscoroutinefunction(each.run):
            await each.run(server)
        else:
            await asyncio.to_thread(each.run, server)


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split()) or repr(error)
    name = type(error).__name__
    return text if isinstance(error, AssertionError) else f"{name}: {text}"
