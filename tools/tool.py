"""A tool: a function that a model may call, with its description for the model."""

import asyncio
import contextvars
import copy
import inspect
import math
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, cast, overload

from caesura.tools.run_view import Context, handed, misfit
from caesura.tools.schema.arguments import arguments_object

if TYPE_CHECKING:
    from caesura.tools.schema.signature import Validator

TIMEOUT_SECONDS = 30.0
"""Limit for one attempt of a tool that does not set its own."""


@dataclass(frozen=True, slots=True, eq=False)
class Tool:
    """A tool, compared by identity. Calling it calls the function that it was made from.

    Raises ValueError at construction for an invalid field.
    """

    name: str
    """The name by which the model calls the tool; a Registry checks its form."""
    description: str
    """What the tool does, for the model. It may be empty, but a model chooses by it."""
    parameters: Mapping[str, Any] = field(repr=False)
    """JSON schema of the arguments, of type "object"."""
    call: Callable[..., Awaitable[Any]] = field(repr=False)
    """Async callable that takes the validated arguments by keyword."""
    timeout_seconds: float | None = TIMEOUT_SECONDS
    """Limit for one attempt; None: no limit."""
    retries: int = 0
    """Further attempts after a failure or time-out; needs `safe_to_repeat`."""
    safe_to_repeat: bool = False
    """Whether running a call twice has no more effect than running it once."""
    when_unknown: Literal["ask", "fail"] = "ask"
    """What follows if the server died during a call, so that nobody knows whether it took effect.
    A tool that is `safe_to_repeat` runs again. Otherwise a person is asked whether it runs again,
    or the call fails, which the model reads."""
    concurrency: int | None = None
    """Calls at the same time, over all sessions that share a registry; None: no limit."""
    max_result_tokens: int | None = None
    """A longer result is cut, with a visible note; None: the dispatcher's limit applies."""
    breaker: int | None = None
    """Failures and time-outs in a row that suspend the tool: calls then fail at once for a while.
    They are counted over all sessions that share a registry. None: never suspended."""
    approval: bool = False
    """Whether a person must approve each call."""
    waits_for_person: bool = False
    """Whether a call lasts until a person has answered; the scheduler is told so."""
    expected_seconds: float | None = None
    """Expected duration of a call before one was measured; None: estimated by the tool's name."""
    background: bool = False
    """Whether the model goes on while a call runs. It is told the result later, between its turns.
    A call in the middle of a sentence is waited for all the same."""
    cuts: bool = False
    """Whether a late result cuts the text that the model writes, at the end of a line or a
    sentence, instead of waiting for the end of its turn; needs `background`."""
    function: Callable[..., Any] | None = field(default=None, repr=False)
    """The Python function that the tool was made from, if any."""
    validate: "Validator | None" = field(default=None, repr=False)
    """Checks a call's arguments; None: they are checked against `parameters`."""
    contexts: tuple[Any, ...] = field(default=(), repr=False)
    """The annotations of the function's parameters that take a `Context`, if it has any."""

    def __post_init__(self) -> None:
        """Check the fields; keep a private copy of the schema."""
        _check(self)
        object.__setattr__(self, "parameters", copy.deepcopy(dict(self.parameters)))
        if self.validate is None:
            # A late import: jsonschema takes long, and most tools have a function's signature.
            from caesura.tools.schema.validator import schema_validator

            object.__setattr__(self, "validate", schema_validator(self.parameters))

    @classmethod
    def from_schema(
        cls,
        name: str,
        description: str,
        parameters: Mapping[str, Any],
        call: Callable[..., Any],
        **options: Any,
    ) -> "Tool":
        """Return a tool whose arguments are described by a JSON schema of type "object".

        call: a function that takes the arguments by keyword; one that is not async runs in a
        thread. options: the other fields of Tool. Raises ValueError for an invalid schema.
        """
        return cls(name, description, parameters, _as_async(call), function=call, **options)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function that the tool was made from, as if it were not a tool."""
        return (self.function or self.call)(*args, **kwargs)

    def spec(self) -> dict[str, Any]:
        """Return the tool's description in the form of OpenAI's chat API."""
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": copy.deepcopy(dict(self.parameters)),
            },
        }

    def arguments(self, text: str) -> dict[str, Any]:
        """Return the keyword arguments for `call`, from the JSON text that a model wrote.

        Raises ArgumentsError, whose message is one sentence for the model.
        """
        return cast("Validator", self.validate)(arguments_object(text))


class ToolOptions(TypedDict, total=False):
    """Options of `@tool(...)` besides name and description: see the fields of Tool."""

    timeout_seconds: float | None
    retries: int
    safe_to_repeat: bool
    when_unknown: Literal["ask", "fail"]
    concurrency: int | None
    max_result_tokens: int | None
    breaker: int | None
    approval: bool
    waits_for_person: bool
    expected_seconds: float | None
    background: bool
    cuts: bool


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...


@overload
def tool(
    *, name: str | None = None, description: str | None = None, **options: Unpack[ToolOptions]
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    **options: Unpack[ToolOptions],
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a typed Python function: `@tool`, or `@tool(timeout_seconds=5)`.

    A `functools.partial` of one is a tool without the parameters that it binds, and an object with
    a typed `__call__` is a tool with the name of its class. A parameter of type `Context` gets the
    run that the call serves, and the model does not see it.

    The options are the fields of Tool (see ToolOptions). The name is the function's; the
    description is the docstring's first paragraph. A function that is not async runs in a thread
    of its own. A thread cannot be killed: after a time-out or a cancellation it runs on to its
    end, while the session continues and the concurrency slot is free again.

    Raises TypeError for a function that cannot be called from JSON and for an unknown option,
    ValueError for invalid options.
    """

    # A late import: it brings pydantic, which a program without functions may not need.
    from caesura.tools.schema.signature import name_of, signature_of

    def make(function: Callable[..., Any]) -> Tool:
        signature = signature_of(function, Context)
        call = _as_async(function)
        return Tool(
            name=name_of(function) if name is None else name,
            description=signature.description if description is None else description,
            parameters=signature.parameters,
            call=_with_context(call, signature.given) if signature.given else call,
            function=function,
            validate=signature.validate,
            contexts=tuple(signature.given.values()),
            **options,
        )

    return make if function is None else make(function)


def _check(tool: Tool) -> None:
    """Raise ValueError for an invalid field."""
    for name in ("timeout_seconds", "expected_seconds"):
        seconds = getattr(tool, name)
        if seconds is not None and not (seconds > 0 and math.isfinite(seconds)):
            raise ValueError(f"tool {tool.name!r}: {name} must be positive or None, got {seconds}")
    if tool.retries < 0:
        raise ValueError(f"tool {tool.name!r}: retries must be >= 0, got {tool.retries}")
    if tool.retries and not tool.safe_to_repeat:
        raise ValueError(f"tool {tool.name!r}: retries need safe_to_repeat=True")
    if tool.cuts and not tool.background:
        raise ValueError(f"tool {tool.name!r}: cuts=True needs background=True")
    if tool.when_unknown not in ("ask", "fail"):
        raise ValueError(
            f"tool {tool.name!r}: when_unknown must be 'ask' or 'fail', got {tool.when_unknown!r}"
        )
    for name in ("concurrency", "max_result_tokens", "breaker"):
        number = getattr(tool, name)
        if number is not None and number < 1:
            raise ValueError(f"tool {tool.name!r}: {name} must be >= 1 or None, got {number}")


def _with_context(
    call: Callable[..., Awaitable[Any]], given: Mapping[str, Any]
) -> Callable[..., Awaitable[Any]]:
    """Return an async callable that gets the context of the call for some parameters.

    `given` are their annotations, by name. The call raises TypeError where the run's dependencies
    are not what they want, such as on a server, which has none.
    """

    async def made(**kwargs: Any) -> Any:
        context = handed()
        for hint in given.values():
            if (kind := misfit(context.deps, hint)) is not None:
                raise TypeError(
                    f"the tool needs dependencies of type {kind}, got {context.deps!r}: give them"
                    " by agent.run(prompt, deps=...)"
                )
        return await call(**kwargs, **dict.fromkeys(given, context))

    return made


def _as_async(function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """Return the function itself when it is async, else one that runs it in a thread."""
    if inspect.iscoroutinefunction(function):
        return function

    async def call(**kwargs: Any) -> Any:
        result = await in_thread(function, **kwargs)
        # A plain wrapper around an async function returns its coroutine.
        return await result if inspect.isawaitable(result) else result

    return call


async def in_thread(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call the function in a new thread, in a copy of the current context.

    A pool would lose a thread to each function that never returns, until no call could run.
    Threads cannot be killed. They are daemons, so that one that hangs does not keep the process
    from ending.

    After a cancellation the thread runs on to its own end. Raises what the function raises, and
    RuntimeError where no thread can be started.
    """
    loop = asyncio.get_running_loop()
    returned: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def work() -> None:
        try:
            tell(returned.set_result, context.run(function, *args, **kwargs))
        except StopIteration:
            # A future cannot carry StopIteration.
            tell(returned.set_exception, RuntimeError("StopIteration"))
        except BaseException as error:
            tell(returned.set_exception, error)

    def tell(setter: Callable[[Any], None], what: Any) -> None:
        with suppress(RuntimeError):  # the loop may be closed already
            loop.call_soon_threadsafe(settle, setter, what)

    def settle(setter: Callable[[Any], None], what: Any) -> None:
        if not returned.done():
            setter(what)

    name = f"tool {getattr(function, '__name__', '')}"
    threading.Thread(target=work, name=name, daemon=True).start()
    return await returned
