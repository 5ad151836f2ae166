"""The plan of a request's run: the tools shown, the side that runs each, and the limits."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from caesura.runtime.engine import Engine
from caesura.runtime.run.limits import Limits, bounded
from caesura.runtime.run.pause_hints import pauses_of
from caesura.runtime.run.transcript import digest
from caesura.runtime.server.chat.schema import ChatMessage, ChatRequest, ClientTool
from caesura.runtime.server.http.errors import ApiError, invalid
from caesura.runtime.server.request.output import AllowedChoice, NamedChoice
from caesura.scheduler.messages import CallRule, Message, Sampling, SessionSpec
from caesura.tools.registry import Registry


@dataclass(frozen=True, slots=True)
class Plan:
    """One request, ready to run.

    `registry` holds only the tools that the client asked the server to run, so the model can
    call no other tool of the server. The client runs `client_tools`.
    """

    messages: tuple[Message, ...]
    conversation: str
    """The digest of the messages."""
    user: str | None
    """The client's user, as the request names it."""
    spec: SessionSpec
    sampling: Sampling
    registry: Registry
    client_tools: frozenset[str]
    limits: Limits
    asker: str = ""
    """The digest of the client, for questions to people; empty: its request tells it."""
    forced_name: str | None = None
    """The tool that the request forces the model to call."""
    choices: int = 1
    """How many answers the request gets, each from a run of its own."""

    def of_choice(self, number: int) -> "Plan":
        """Return the plan of one choice, which has a seed of its own if the request has one."""
        if self.sampling.seed is None:
            return self
        return replace(self, sampling=replace(self.sampling, seed=self.sampling.seed + number))


def make_plan(request: ChatRequest, engine: Engine, tools: Registry, limits: Limits) -> Plan:
    """Return the plan of `request`; raise `ApiError` for a model or tool that is not served."""
    adapter = adapter_of(request.model, engine)
    registry = selected(request.server_tools, tools)
    clients = _client_tools(request.tools, registry)
    choice = request.tool_choice
    if isinstance(choice, NamedChoice):
        registry, clients = _only([choice.function.name], registry, clients)
    specs = [tool.spec() for tool in clients.values()] + registry.specs()
    if isinstance(choice, AllowedChoice):
        registry, clients = _only(choice.names, registry, clients)
    rule = _call_rule(request, (*clients, *registry.names))
    if choice == "none":
        registry = Registry()  # the model sees the tools but cannot call them
    sampling = replace(request.sampling(), calls=rule)
    messages = records_of(request.messages)
    return Plan(
        messages=messages,
        conversation=digest(messages),
        user=request.user,
        spec=SessionSpec(
            tools=specs,
            sampling=sampling,
            pausing=len(registry) > 0,
            tool_choice="none" if request.tool_choice == "none" else "auto",
            pauses=pauses_of(registry),
            template=request.template(),
            prefill=request.continue_final_message,
            cache_salt=request.cache_salt,
            priority=request.priority,
            adapter=adapter,
        ),
        sampling=sampling,
        registry=registry,
        client_tools=frozenset(clients),
        limits=bounded(limits, request.token_limit),
        forced_name=choice.function.name if isinstance(choice, NamedChoice) else None,
        choices=request.n or 1,
    )


def _call_rule(request: ChatRequest, names: Sequence[str]) -> CallRule | None:
    """Return which calls a turn may hold, or None if the model decides alone.

    Raises `ApiError` if a call is required and there is no tool.
    """
    choice = request.tool_choice
    allowed = choice.allowed_tools if isinstance(choice, AllowedChoice) else None
    required = choice == "required" or isinstance(choice, NamedChoice)
    required = required or (allowed is not None and allowed.mode == "required")
    if required and not names:
        raise invalid("tool_choice requires a call, but the request has no tools.", "tool_choice")
    strict = frozenset(tool.function.name for tool in request.tools if tool.function.strict)
    rule = CallRule(
        required=required,
        single=request.parallel_tool_calls is False,
        names=tuple(names) if allowed is not None else None,
        strict=strict & set(names),
    )
    return None if choice == "none" or rule == CallRule() else rule


def adapter_of(asked: str, engine: Engine) -> str | None:
    """Return the LoRA adapter that a request names as its model, or None for the model itself.

    Raises `ApiError` 404 for any other name.
    """
    if asked == engine.model:
        return None
    if asked in engine.adapters:
        return asked
    names = ", ".join(map(repr, (engine.model, *engine.adapters)))
    verb = "are" if engine.adapters else "is"
    message = f"The model {asked!r} is not served here; {names} {verb}."
    raise ApiError(404, message, param="model", code="model_not_found")


def selected(names: Sequence[str], tools: Registry) -> Registry:
    """Return the tools that `server_tools` names; raise `ApiError` for an unknown one."""
    try:
        return tools.select(dict.fromkeys(names))
    except ValueError as error:
        raise invalid(f"server_tools: {error}.", "server_tools", "unknown_tool") from None


def _client_tools(tools: Sequence[ClientTool], registry: Registry) -> dict[str, ClientTool]:
    """Return the client's tools by name; raise `ApiError` if two tools share a name."""
    clients: dict[str, ClientTool] = {}
    for number, tool in enumerate(tools):
        name, param = tool.function.name, f"tools[{number}].function.name"
        if name in clients:
            raise invalid(f"{param}: there is already a tool named {name!r}.", param)
        if name in registry:
            raise invalid(f"{param}: {name!r} is named in server_tools too.", param)
        clients[name] = tool
    return clients


def _only(
    names: Sequence[str], registry: Registry, clients: dict[str, ClientTool]
) -> tuple[Registry, dict[str, ClientTool]]:
    """Return the registry and the client's tools, reduced to the tools of these names."""
    for name in names:
        if name not in registry and name not in clients:
            raise invalid(
                f"tool_choice names {name!r}, which is not among the tools.", "tool_choice"
            )
    kept = {name: clients[name] for name in names if name in clients}
    return registry.select([name for name in names if name in registry]), kept


def records_of(messages: Sequence[ChatMessage]) -> tuple[Message, ...]:
    """Return the messages in the engine's form; a tool message gets its tool's name."""
    names: dict[str | None, str] = {}
    records: list[dict[str, Any]] = []
    for message in messages:
        names |= {call.id: call.function.name for call in message.tool_calls}
        record = message.record()
        if message.role == "tool" and message.tool_call_id in names:
            record["name"] = names[message.tool_call_id]
        records.append(record)
    return tuple(records)
