"""A tool: a function that a model may call, with what the model is told of it."""

import copy
import inspect
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict, Unpack, cast, overload

from caesura.tools.dispatch.threads import in_thread
from caesura.tools.schema.arguments import arguments_object
from caesura.tools.schema.signature import Validator, signature_of
from caesura.tools.schema.validator import schema_validator

TIMEOUT_SECONDS = 30.0
"""How long a tool's call may take unless the tool says otherwise."""


@dataclass(frozen=True, slots=True, eq=False)
class Tool:
    """A tool, compared by identity. Calling it calls the function that it was made from.

    Raises ValueError at construction when a field makes no sense.
    """

    name: str
    """How the model calls it; a Registry checks the form."""
    description: str
    """What it does, for the model; may be empty, but a model chooses by it."""
    parameters: Mapping[str, Any] = field(repr=False)
    """JSON schema of the arguments, of type "object"."""
    call: Callable[..., Awaitable[Any]] = field(repr=False)
    """Async callable that takes the validated arguments by keyword."""
    timeout_seconds: float | None = TIMEOUT_SECONDS
    """The longest that one attempt may run; None: no limit."""
    retries: int = 0
    """How often a call that failed or timed out is tried again; needs `safe_to_repeat`."""
    safe_to_repeat: bool = False
    """Whether running a call twice does no more than running it once."""
    concurrency: int | None = None
    """The most calls at a time, over all sessions that share a registry; None: no limit."""
    max_result_tokens: int | None = None
    """Where a result is cut, visibly; None: where the dispatcher cuts any."""
    breaker: int | None = None
    """So many failures and time-outs in a row, over all sessions that share a registry, and the
    tool rests: calls fail at once for a while. None: never."""
    approval: bool = False
    """Whether a person has to agree before each call."""
    waits_for_person: bool = False
    """Whether a call lasts until a person has answered; the scheduler is told."""
    expected_seconds: float | None = None
    """How long a call is expected to last before anybody has seen one; None: by its name."""
    function: Callable[..., Any] | None = field(default=None, repr=False)
    """The Python function that it was made from, if any."""
    validate: Validator | None = field(default=None, repr=False)
    """Checks a call's arguments; left out, they are checked against `parameters`."""

    def __post_init__(self) -> None:
        """Check the fields; keep a copy of the schema that nobody else can change."""
        _check(self)
        object.__setattr__(self, "parameters", copy.deepcopy(dict(self.parameters)))
        if self.validate is None:
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
        """A tool whose arguments are described by a JSON schema, of type "object".

        call: an async callable, or a plain one that runs in a thread, taking the arguments by
        keyword. options: the other fields of Tool. Raises ValueError for a bad schema.
        """
        return cls(name, description, parameters, _as_async(call), function=call, **options)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function that the tool was made from, as if it were not a tool."""
        return (self.function or self.call)(*args, **kwargs)

    def spec(self) -> dict[str, Any]:
        """The tool as OpenAI's chat API describes one."""
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": copy.deepcopy(dict(self.parameters)),
            },
        }

    def arguments(self, text: str) -> dict[str, Any]:
        """The keyword arguments for `call`, from the JSON text that a model wrote.

        Raises ArgumentsError, whose message is one sentence for the model.
        """
        return cast(Validator, self.validate)(arguments_object(text))


class ToolOptions(TypedDict, total=False):
    """What `@tool(...)` takes besides a name and a description: see the fields of Tool."""

    timeout_seconds: float | None
    retries: int
    safe_to_repeat: bool
    concurrency: int | None
    max_result_tokens: int | None
    breaker: int | None
    approval: bool
    waits_for_person: bool
    expected_seconds: float | None


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
    """Make a typed Python function a tool: `@tool`, or `@tool(timeout_seconds=5)`.

    The options are the fields of Tool (see ToolOptions); the name is the function's, the
    description the docstring's first paragraph. A plain (not async) function runs in a thread of
    its own. A thread cannot be killed: a call that times out or is cancelled is abandoned, and its
    thread runs on to its own end, although the session goes on without it and its concurrency slot
    is free again.

    Raises TypeError for a function that cannot be called from JSON and for an unknown option,
    ValueError for bad options.
    """

    def make(function: Callable[..., Any]) -> Tool:
        signature = signature_of(function)
        return Tool(
            name=function.__name__ if name is None else name,
            description=signature.description if description is None else description,
            parameters=signature.parameters,
            call=_as_async(function),
            function=function,
            validate=signature.validate,
            **options,
        )

    return make if function is None else make(function)


def _check(tool: Tool) -> None:
    """Raise ValueError for a field that makes no sense."""
    for name in ("timeout_seconds", "expected_seconds"):
        seconds = getattr(tool, name)
        if seconds is not None and not (seconds > 0 and math.isfinite(seconds)):
            raise ValueError(f"tool {tool.name!r}: {name} must be above 0, or None")
    if tool.retries < 0:
        raise ValueError(f"tool {tool.name!r}: retries must be 0 or more")
    if tool.retries and not tool.safe_to_repeat:
        raise ValueError(f"tool {tool.name!r}: retries need safe_to_repeat=True")
    for name in ("concurrency", "max_result_tokens", "breaker"):
        number = getattr(tool, name)
        if number is not None and number < 1:
            raise ValueError(f"tool {tool.name!r}: {name} must be 1 or more, or None")


def _as_async(function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """The function itself when it is async, else one that runs it in a thread."""
    if inspect.iscoroutinefunction(function):
        return function

    async def call(**kwargs: Any) -> Any:
        result = await in_thread(function, **kwargs)
        # A plain wrapper around an async function gives its coroutine.
        return await result if inspect.isawaitable(result) else result

    return call
