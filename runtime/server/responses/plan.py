"""The run of a response: its messages, its tools, and the calls that the response shows.

A conversation that does not fit the context window is shortened for `truncation: "auto"`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from caesura.runtime.engine import Engine
from caesura.runtime.run.context import Plan, pauses_of
from caesura.runtime.run.fold import digest
from caesura.runtime.run.limits import Limits, bounded
from caesura.runtime.server.api.chat_request import in_background, put_in_background, selected
from caesura.runtime.server.api.compaction import summarising
from caesura.runtime.server.api.custom import enforced
from caesura.runtime.server.api.hosted import bound, counted, run_here
from caesura.runtime.server.api.notes import say_once
from caesura.runtime.server.http.errors import invalid
from caesura.runtime.server.responses.answer import Shown
from caesura.runtime.server.responses.items import TRIGGER, is_clients_search
from caesura.runtime.server.responses.messages import messages_of, with_instructions
from caesura.runtime.server.responses.schema import Prompt, ResponseRequest, left_out
from caesura.runtime.server.responses.store import Item
from caesura.runtime.server.responses.tools import (
    SERVER_LABEL,
    AllowedTools,
    Chosen,
    ChosenFunction,
    ChosenHosted,
    ClientFunction,
    CodeInterpreterTool,
    CustomTool,
    HostedTool,
    ServerTools,
    Tool,
    ToolSearchTool,
    found_in,
    functions_of,
    here_of,
    hosted_kind,
)
from caesura.scheduler.messages import CallRule, InputGrammar, Message, SessionSpec, ToolSpec
from caesura.tools.people import People
from caesura.tools.people.asking import with_approval
from caesura.tools.registry import Registry
from caesura.tools.tool import Tool as ServerTool


@dataclass(frozen=True, slots=True)
class History:
    """What came before a request: the messages for the model, and the items."""

    messages: Sequence[Message] = ()
    items: Sequence[Item] = ()


@dataclass(frozen=True, slots=True)
class Offer:
    """The tools of a request: those of the client by flat name, and those of the server."""

    specs: Sequence[ToolSpec]
    """The tools in the list of the prompt."""
    client: dict[str, tuple[str, str | None]]
    registry: Registry
    named: frozenset[str]
    """The server's tools that the request named in the form of an MCP server."""
    hosted: frozenset[str] = frozenset()
    """Those that the request named as OpenAI's own tools."""
    custom: frozenset[str] = frozenset()
    """The flat names of the client's tools whose input is free text."""
    inputs: Mapping[str, InputGrammar] = field(default_factory=dict)
    """The grammars of such tools by flat name, where they are enforced."""
    rule: CallRule | None = None
    """Which calls a turn may hold; None if the model decides alone."""
    deferred: Sequence[ToolSpec] = ()
    """The tools of which messages tell the model."""
    tool_search: frozenset[str] = frozenset()
    """The client's search of tools, if there is one."""
    background: frozenset[str] = frozenset()
    """The flat names of the client's tools for whose results the model does not wait."""


@dataclass(frozen=True, slots=True)
class ResponsePlan:
    """One request, ready to run."""

    run: Plan
    shown: Shown
    own: Sequence[Message]
    """The messages of the request's own input."""
    listed: Sequence[Item] | None
    """The list of the server's tools that the response begins with, or None for no list."""
    notes: Sequence[str] = ()
    """What of the request is left out since the engine cannot do it."""


def make_plan(
    request: ResponseRequest,
    items: Sequence[Item],
    history: History,
    engine: Engine,
    tools: Registry,
    limits: Limits,
    people: People | None,
) -> ResponsePlan:
    """Return the plan of `request` for the model itself; raise `ApiError` for a wrong tool."""
    say_once(left_out(request))
    inputs, notes = input_grammars(request.tools, engine)
    found = found_tools([*history.items, *items])
    offer = offered(request, tools, people, inputs, found)
    goes_on = {item["call_id"] for item in history.items if item.get("async")}
    own = messages_of(items, history.messages, goes_on)
    if not (own or history.messages or request.instructions):
        raise invalid("input is missing: send a text, or a list of items.", "input")
    sampling = replace(request.sampling(), calls=offer.rule)
    compacts = any(item["type"] == TRIGGER for item in items)
    messages = tuple(with_instructions(request.instructions, [*history.messages, *own]))
    registry = offer.registry
    calls_allowed = request.tool_choice != "none"
    spec = SessionSpec(
        tools=offer.specs,
        sampling=sampling,
        pausing=calls_allowed and (len(registry) > 0 or bool(offer.background)),
        tool_choice="auto" if calls_allowed else "none",
        pauses=pauses_of(registry) if calls_allowed else {},
        template=request.template(),
        cache_salt=request.cache_salt,
        priority=request.priority,
        origin=request.origin,
        deferred=offer.deferred,
    )
    run = Plan(
        messages=messages,
        conversation=digest(messages),
        user=request.who,
        spec=spec,
        sampling=sampling,
        registry=_counted(registry, request.max_tool_calls) if calls_allowed else Registry(),
        client_tools=frozenset(offer.client),
        limits=bounded(limits, request.max_output_tokens),
        client_background=offer.background,
    )
    if compacts:
        run = summarising(run)
        own = [*own, run.messages[-1]]
    listed = None if compacts else _listed(offer, history)
    shown = replace(_shown(offer, spec, compacts), container_id=_container_in(request.tools))
    return ResponsePlan(run, shown, own, listed, notes)


def input_grammars(
    tools: Sequence[Tool], engine: Engine
) -> tuple[dict[str, InputGrammar], list[str]]:
    """Return the grammars of custom tools by flat name, and a note for each that is not enforced.

    One is not where the model's format of calls has no place for it, or nobody can read it.
    """
    functions = [each for tool in tools for each in functions_of(tool)]
    grammars = [
        (_flat(tool, namespace), tool.name, tool.grammar)
        for tool, namespace in functions
        if isinstance(tool, CustomTool)
    ]
    return enforced(grammars, engine)


_NO_GRAMMARS: Mapping[str, InputGrammar] = {}
Found = Sequence[tuple[ClientFunction, str | None]]
"""Functions of the client, with their namespaces."""


def found_tools(items: Iterable[Item]) -> Found:
    """Return the tools that searches of the client's have found in a conversation."""
    outputs = (item for item in items if item["type"] == "tool_search_output")
    return [each for item in outputs if is_clients_search(item) for each in found_in(item)]


def offered(
    request: Prompt,
    tools: Registry,
    people: People | None,
    inputs: Mapping[str, InputGrammar] = _NO_GRAMMARS,
    found: Found = (),
) -> Offer:
    """Return the tools that a request shows to the model; raise `ApiError` for wrong ones.

    Those that were `found` are deferred, and those that the request says are, if it has a search.
    """
    named = _named(request.tools, tools)
    here = run_here(tools)
    found_here = [t for t in request.tools if isinstance(t, HostedTool) and t.here in here]
    hosted = {tool.here: tool for tool in reversed(found_here)}
    hidden = selected(request.server_tools, tools).names
    own = [*(name for name in hidden if name not in named), *named]
    registry = tools.select([*own, *(name for name in hosted if name not in own)])
    registry = _bound(registry, hosted)
    registry = in_background(registry, request.server_tools)
    registry = _named_in_background(registry, request.tools)
    registry = _with_approvals(registry, request.tools, people)
    specs, client = _client_tools(request.tools, registry)
    functions = [each for tool in request.tools for each in functions_of(tool)]
    search = frozenset(tool.name for tool in request.tools if isinstance(tool, ToolSearchTool))
    late = _deferred(functions) if search else {}
    more = {_flat(*each): each for each in found if _flat(*each) not in {*client, *registry.names}}
    client |= {flat: (function.name, space) for flat, (function, space) in more.items()}
    deferred = late | {flat: function.spec(space) for flat, (function, space) in more.items()}
    functions += more.values()
    custom = {_flat(*each) for each in functions if isinstance(each[0], CustomTool)}
    shown = [spec for spec in specs if spec["function"]["name"] not in late]
    offer = Offer(
        [*shown, *registry.specs()],
        client,
        registry,
        frozenset(named) - hosted.keys(),
        frozenset(hosted),
        frozenset(custom),
        inputs,
        deferred=list(deferred.values()),
        tool_search=search,
        background=frozenset(_flat(*each) for each in functions if each[0].async_),
    )
    return _chosen(offer, request)


def _deferred(functions: Found) -> dict[str, ToolSpec]:
    """Return those of a request's functions that the prompt does not list, by flat name."""
    return {_flat(*each): each[0].spec(each[1]) for each in functions if each[0].defer_loading}


def _bound(registry: Registry, hosted: Mapping[str, HostedTool]) -> Registry:
    """Return the registry, whose hosted tools are as the request wants them."""
    made = [
        bound(tool, hosted[tool.name].settings()) if tool.name in hosted else tool
        for tool in registry
    ]
    return Registry(made, shared=registry)


def _named(tools: Sequence[Tool], registry: Registry) -> list[str]:
    """Return the names of the server's tools that are named in the form of an MCP server."""
    names: dict[str, None] = {}
    for number, tool in enumerate(tools):
        if not isinstance(tool, ServerTools):
            continue
        path = f"tools[{number}]"
        if tool.server_label != SERVER_LABEL or tool.foreign:
            raise invalid(
                f"{path}: this server calls no other MCP servers; server_label {SERVER_LABEL!r}, "
                "without an address, names its own tools.",
                path,
            )
        for name in registry.names if tool.names is None else tool.names:
            if name not in registry:
                field = f"{path}.allowed_tools"
                raise invalid(f"{field}: {registry.unknown(name)}.", field, "unknown_tool")
            names[name] = None
    return list(names)


def _named_in_background(registry: Registry, tools: Sequence[Tool]) -> Registry:
    """Return the registry, with the tools in the background for which the request asks it.

    Raises `ApiError` for those whose calls the request wants to approve itself.
    """
    named: set[str] = set()
    for number, tool in enumerate(tools):
        if not isinstance(tool, ServerTools) or not tool.async_:
            continue
        names = [name for name in registry.names if tool.names is None or name in tool.names]
        for name in names:
            if tool.asks_approval(name):
                param = f"tools[{number}].async"
                raise invalid(
                    f"{param}: calls of {name!r} wait for an approval, so that the model cannot go"
                    " on meanwhile: leave async or require_approval out.",
                    param,
                )
        named.update(names)
    return put_in_background(registry, named)


def _with_approvals(registry: Registry, tools: Sequence[Tool], people: People | None) -> Registry:
    """Return the registry, with approvals before the calls for which the request asks them."""
    asked = [tool for tool in tools if isinstance(tool, ServerTools)]
    wanted = {tool.name for tool in registry if any(t.asks_approval(tool.name) for t in asked)}
    if not wanted:
        return registry
    if people is None:
        message = "tools: this server has no approvals: leave require_approval out."
        raise invalid(message, "tools")
    changed = [with_approval(tool, people) if tool.name in wanted else tool for tool in registry]
    return Registry(changed, shared=registry)


def _client_tools(
    tools: Sequence[Tool], registry: Registry
) -> tuple[list[ToolSpec], dict[str, tuple[str, str | None]]]:
    """Return the client's tools for the engine, and their names and namespaces by flat name."""
    specs: list[ToolSpec] = []
    names: dict[str, tuple[str, str | None]] = {}
    for number, tool in enumerate(tools):
        for function, namespace in functions_of(tool):
            spec = function.spec(namespace)
            flat, param = spec["function"]["name"], f"tools[{number}]"
            if flat in names:
                raise invalid(f"{param}: there is already a tool named {flat!r}.", param)
            if flat in registry:
                raise invalid(f"{param}: the server's tool {flat!r} has that name.", param)
            names[flat] = (function.name, namespace)
            specs.append(spec)
    return specs, names


def _flat(tool: ClientFunction, namespace: str | None) -> str:
    return str(tool.spec(namespace)["function"]["name"])


def _chosen(offer: Offer, request: Prompt) -> Offer:
    """Return the tools that the tool choice allows, with the rule of calls that it makes.

    The model is shown a chosen tool alone, but all tools beside the allowed ones.
    """
    choice = request.tool_choice
    kept = offer
    if not (choice is None or isinstance(choice, str)):
        choices = choice.tools if isinstance(choice, AllowedTools) else [choice]
        kept = _only({name for each in choices for name in _names_in(each, offer)}, offer)
        if isinstance(choice, AllowedTools):
            kept = replace(kept, specs=offer.specs, deferred=offer.deferred)
        else:  # the prompt of a forced call lists its tool
            kept = replace(kept, specs=[*kept.specs, *kept.deferred], deferred=())
    return kept if choice == "none" else replace(kept, rule=_rule(kept, request))


def _only(names: set[str], offer: Offer) -> Offer:
    """Return the offer, reduced to the tools of these flat names."""
    return Offer(
        [spec for spec in offer.specs if spec["function"]["name"] in names],
        {flat: told for flat, told in offer.client.items() if flat in names},
        offer.registry.select([name for name in offer.registry.names if name in names]),
        offer.named & names,
        offer.hosted & names,
        offer.custom & names,
        {flat: grammar for flat, grammar in offer.inputs.items() if flat in names},
        deferred=[spec for spec in offer.deferred if spec["function"]["name"] in names],
        tool_search=offer.tool_search & names,
        background=offer.background & names,
    )


def _rule(offer: Offer, request: Prompt) -> CallRule | None:
    """Return which calls a turn may hold, or None if the model decides alone.

    Raises `ApiError` if a call is required and there is no tool.
    """
    choice = request.tool_choice
    names = (*offer.client, *offer.registry.names)
    allowed = choice if isinstance(choice, AllowedTools) else None
    required = (choice if allowed is None else allowed.mode) not in (None, "auto", "none")
    if required and not names:
        raise invalid("tool_choice requires a call, but the request has no tools.", "tool_choice")
    rule = CallRule(
        required=required,
        single=request.parallel_tool_calls is False,
        names=names if allowed is not None else None,
        strict=_strict(request.tools) & set(names),
        inputs=offer.inputs,
    )
    return None if rule == CallRule() else rule


def _strict(tools: Sequence[Tool]) -> frozenset[str]:
    """Return the flat names of the client's tools whose calls follow their schemas."""
    functions = [each for tool in tools for each in functions_of(tool)]
    return frozenset(_flat(*each) for each in functions if each[0].strict)


def _names_in(choice: Chosen, offer: Offer) -> set[str]:
    """Return the flat names that a choice names; raise `ApiError` if there is no such tool."""
    if isinstance(choice, ChosenHosted):
        if (name := here_of(choice.type) or hosted_kind(choice.type)) in (
            offer.hosted | offer.tool_search
        ):
            return {str(name)}
        message = f"tool_choice names {choice.type!r}, a tool of OpenAI's own that is not here."
        raise invalid(message, "tool_choice")
    if isinstance(choice, ChosenFunction):
        found = {choice.name} & (offer.client.keys() | set(offer.registry.names))
        said = repr(choice.name)
    else:
        found = set(offer.named if choice.name is None else offer.named & {choice.name})
        said = f"{choice.name or 'tools'!r} of the server {choice.server_label!r}"
    if not found:
        raise invalid(f"tool_choice names {said}, which is not among the tools.", "tool_choice")
    return found


def _shown(offer: Offer, spec: SessionSpec, compacts: bool) -> Shown:
    approved = {tool.name for tool in offer.registry if tool.approval}
    return Shown(
        client=offer.client,
        custom=offer.custom,
        tool_search=offer.tool_search,
        server=offer.named,
        hosted=offer.hosted,
        approved=frozenset(offer.named & approved),
        label=SERVER_LABEL,
        pausing=spec.pausing,
        compacts=compacts,
        background=offer.background if spec.pausing else frozenset(),
    )


def _container_in(tools: Sequence[Tool]) -> str | None:
    """Return the container of a code interpreter that a request names."""
    found = (tool.container_id for tool in tools if isinstance(tool, CodeInterpreterTool))
    return next(found, None)


def _listed(offer: Offer, history: History) -> list[Item] | None:
    """Return the list of the named tools, unless an earlier response has shown the same list."""
    if not offer.named:
        return None
    tools = [_described(tool) for tool in offer.registry if tool.name in offer.named]
    for item in history.items:
        if item["type"] == "mcp_list_tools" and item.get("tools") == tools:
            return None
    return tools


def _described(tool: ServerTool) -> dict[str, Any]:
    spec = tool.spec()["function"]
    return {
        "name": spec["name"],
        "description": spec["description"],
        "input_schema": spec["parameters"],
        "annotations": None,
    }


def _counted(registry: Registry, most: int | None) -> Registry:
    """Return the registry; the tools of a run refuse calls beyond the first `most`, if any."""
    why = f"no more tools can be called in this answer: at most {most}"
    return Registry(counted(registry, most, why), shared=registry)


DROPPED_SHARE = 1 / 4
"""The share of the messages that one step drops at least."""


def shortened(messages: Sequence[Message]) -> list[Message] | None:
    """Return the messages without the oldest ones, or None if nothing can be dropped.

    System messages at the begin stay. The rest begins with a message of the user, so that no
    result is parted from its call, and holds at least the last one.
    """
    first = next(
        (number for number, each in enumerate(messages) if each.get("role") != "system"),
        len(messages),
    )
    starts = [n for n, each in enumerate(messages) if each.get("role") == "user" and n > first]
    if not starts:
        return None
    wanted = first + max(1, int((len(messages) - first) * DROPPED_SHARE))
    start = next((number for number in starts if number >= wanted), starts[-1])
    return [*messages[:first], *messages[start:]]
