"""A chat completion request: its schema with OpenAI's fields and our own, and the plan of its run.

`HARMLESS` fields change nothing in the answer and are ignored. `NEUTRAL` fields may have the value
that changes nothing. Fields that are known to change the answer are refused with their names, and
all others are left out with a note. Fields that the parts of a message or of a tool do not name are
ignored.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PlainValidator,
    Tag,
    ValidationError,
    model_validator,
)

from caesura.runtime.engine import Engine
from caesura.runtime.run.context import Plan, pauses_of
from caesura.runtime.run.fold import digest
from caesura.runtime.run.limits import Limits, bounded
from caesura.runtime.run.media import MEDIA_ROLES, Content, content_of
from caesura.runtime.run.served_agent import NO_AGENTS, Agents
from caesura.runtime.server.api.agents import AgentRequest, agents_adapter
from caesura.runtime.server.api.custom import arguments_of, enforced, shown_function
from caesura.runtime.server.api.fields import (
    MAX_MESSAGES,
    MAX_TOOLS,
    AllowedChoice,
    BackgroundName,
    CustomChoice,
    Listed,
    Name,
    NamedChoice,
    NotEmpty,
    Part,
    Pattern,
    Priority,
    ResponseFormat,
    SamplingFields,
    ServerToolNames,
    TemplateVariables,
    ToolChoice,
    Waits,
    in_words,
    template_variables,
)
from caesura.runtime.server.api.notes import UNSUPPORTED, left_out_of, say_once
from caesura.runtime.server.http.errors import ApiError, invalid
from caesura.runtime.server.http.lineage import named_in
from caesura.scheduler.messages import (
    CallRule,
    InputGrammar,
    Message,
    Sampling,
    SessionSpec,
    TextFormat,
    ToolSpec,
)
from caesura.tools.registry import Registry

MAX_CHOICES = 16
"""The most choices of one request; each is a session of the engine."""
Role = Literal["system", "developer", "user", "assistant", "tool"]
HARMLESS = {
    "metadata",
    "prediction",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "request_id",
    "safety_identifier",
    "service_tier",
    "session_id",
    "store",
    "stream_interval",
}
"""Fields of OpenAI's and vLLM's that do not change the answer."""
NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "add_generation_prompt": (True,),
    "add_special_tokens": (False,),
    "echo": (False,),
    "function_call": ("auto", "none"),
    "functions": ([],),
    "ignore_eos": (False,),
    "include_stop_str_in_output": (False,),
    "length_penalty": (1,),
    "modalities": (["text"],),
    "prompt_logprobs": (),
    "return_token_ids": (False,),
    "return_tokens_as_token_ids": (False,),
    "skip_special_tokens": (True,),
    "spaces_between_special_tokens": (True,),
    "use_beam_search": (False,),
}
"""Unsupported fields, and the values with which they change nothing; null always does."""
REFUSED = UNSUPPORTED | {"audio", "web_search_options"}
"""Fields that change the answer, and that are refused."""


def _json_text(arguments: object) -> object:
    """Return arguments as JSON text; some clients keep them as an object in their history."""
    return json.dumps(arguments) if isinstance(arguments, dict) else arguments


class CalledFunction(Part):
    """The function that a call in the history names."""

    name: Name
    arguments: Annotated[str, BeforeValidator(_json_text)] = "{}"


class HistoryCall(Part):
    """A call that an earlier assistant message made; one of a custom tool is that of a function."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction

    @model_validator(mode="before")
    @classmethod
    def _as_function(cls, call: Any) -> Any:
        made = call.get("custom") if isinstance(call, dict) and call.get("type") == "custom" else 0
        if made == 0:
            return call
        if not isinstance(made, dict) or not isinstance(made.get("input"), str):
            raise ValueError("a call of type custom must have custom, with a name and an input")
        function = {"name": made.get("name"), "arguments": arguments_of(made["input"])}
        return {**call, "type": "function", "function": function}


class ChatMessage(Part):
    """One message of the conversation."""

    role: Role
    content: Annotated[Content, PlainValidator(content_of)] = ""
    tool_calls: Annotated[list[HistoryCall], Listed] = []
    tool_call_id: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None

    @model_validator(mode="after")
    def _belongs_together(self) -> Self:
        if self.role == "tool" and not self.tool_call_id:
            raise ValueError("a tool message must have the tool_call_id of the call it answers")
        if self.role not in MEDIA_ROLES and not isinstance(self.content, str):
            raise ValueError(f"content of a message of role {self.role} must be text")
        if self.role != "assistant" and self.tool_calls:
            raise ValueError(f"only an assistant message may have tool_calls, not a {self.role}'s")
        return self

    def record(self) -> dict[str, Any]:
        """Return the message in the engine's form; the role `developer` becomes `system`."""
        role = "system" if self.role == "developer" else self.role
        message: dict[str, Any] = {"role": role, "content": self.content}
        if self.tool_calls:
            message["tool_calls"] = [call.model_dump() for call in self.tool_calls]
        reasoning = self.reasoning or self.reasoning_content
        if self.role == "assistant" and reasoning:
            message["reasoning"] = reasoning
        if self.role == "tool":
            message["tool_call_id"] = self.tool_call_id
        return message


class ToolFunction(Part):
    """The name, description and parameters of a client's tool.

    With `strict`, the arguments of its calls follow the parameters' schema.
    """

    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    async_: Waits = None


class ClientTool(Part):
    """A tool that the client runs itself."""

    type: Literal["function"]
    function: ToolFunction
    async_: Waits = None

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.function.name

    @property
    def is_strict(self) -> bool:
        """Whether calls follow the parameters' schema."""
        return bool(self.function.strict)

    def spec(self) -> ToolSpec:
        """Return the tool in the engine's form."""
        function = {
            "name": self.function.name,
            "description": self.function.description or "",
            "parameters": self.function.parameters or {"type": "object", "properties": {}},
        }
        return {"type": "function", "function": function}


class Grammar(Part):
    """What the input of a custom tool may be."""

    syntax: Literal["lark", "regex"]
    definition: Pattern


class InputFormat(Part):
    """Whether the input of a custom tool is free text, or follows a grammar."""

    type: Literal["text", "grammar"]
    grammar: Grammar | None = None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.type == "grammar" and self.grammar is None:
            raise ValueError("grammar is missing: it holds a syntax and a definition")
        return self


class CustomFunction(Part):
    """The name, description and input of a custom tool."""

    name: Name
    description: str | None = None
    format: InputFormat | None = None


class CustomTool(Part):
    """A tool that the client runs itself on a free text; the model sees a function of one text."""

    type: Literal["custom"]
    custom: CustomFunction

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.custom.name

    @property
    def is_strict(self) -> bool:
        """Whether calls follow the parameters' schema; there is none."""
        return False

    @property
    def grammar(self) -> InputGrammar | None:
        """The grammar of the input, or None for free text."""
        given = None if self.custom.format is None else self.custom.format.grammar
        return None if given is None else InputGrammar(given.syntax, given.definition)

    def spec(self) -> ToolSpec:
        """Return the tool in the engine's form."""
        return shown_function(self.name, self.custom.description, self.grammar)


def _kind(tool: Any) -> str:
    kind = tool.get("type") if isinstance(tool, dict) else getattr(tool, "type", None)
    return CustomTool.__name__ if kind == "custom" else ClientTool.__name__


ChatTool = Annotated[
    Annotated[ClientTool, Tag(ClientTool.__name__)]
    | Annotated[CustomTool, Tag(CustomTool.__name__)],
    Discriminator(_kind),
]


class StreamOptions(Part):
    """Options of a streamed answer."""

    include_usage: bool = False
    continuous_usage_stats: bool = False
    """vLLM's own: a usage in every chunk, which is left out here."""


class ChatRequest(SamplingFields):
    """The body of `POST /v1/chat/completions`.

    `server_tools` is Caesura's own field: the names of the tools that the server runs inside the
    request. The server runs no other tool.
    """

    model: str
    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=MAX_MESSAGES)]
    tools: Annotated[list[ChatTool], Field(max_length=MAX_TOOLS), Listed] = []
    tool_choice: Literal["none", "auto", "required"] | ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    server_tools: ServerToolNames = []
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    user: str | None = None
    logprobs: bool | None = None
    response_format: ResponseFormat | None = None
    chat_template_kwargs: TemplateVariables | None = None
    reasoning_effort: str | None = None
    continue_final_message: bool = False
    add_generation_prompt: bool | None = None
    cache_salt: NotEmpty | None = None
    priority: Priority = 0
    include_reasoning: bool | None = None

    model_config = ConfigDict(extra="allow", frozen=True)

    @property
    def custom_tools(self) -> frozenset[str]:
        """The names of the custom tools."""
        return frozenset(tool.name for tool in self.tools if isinstance(tool, CustomTool))

    @property
    def token_limit(self) -> int | None:
        """The most tokens of the whole answer; the newer of OpenAI's two fields wins."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with a chunk of usage."""
        return self.stream_options is not None and self.stream_options.include_usage

    def sampling(self) -> Sampling:
        """Return the sampling settings."""
        return self.sampling_with(self.token_limit, bool(self.logprobs), self._text())

    def _text(self) -> TextFormat | None:
        form = self.structured_outputs or self.response_format
        return form.text() if form is not None else None

    def template(self) -> dict[str, Any]:
        """Return the variables for the model's chat template, as vLLM's server names them."""
        return template_variables(self.reasoning_effort, self.chat_template_kwargs)

    def left_out(self) -> list[str]:
        """Return what is left out; raise `ApiError` for a field that cannot be."""
        notes = left_out_of(self.model_extra, harmless=HARMLESS, neutral=NEUTRAL, refused=REFUSED)
        if self.stream_options is not None and self.stream_options.continuous_usage_stats:
            notes.append("field stream_options.continuous_usage_stats")
        return notes


def parse(body: bytes) -> ChatRequest:
    """Return the request in a body; raise an `ApiError` that names the wrong field."""
    try:
        request = ChatRequest.model_validate_json(body)
    except ValidationError as error:
        raise in_words(error) from None
    refuse_unsupported(request)
    return request


def refuse_unsupported(request: ChatRequest) -> None:
    """Raise `ApiError` that names a field which is not supported, or that another one excludes."""
    request.left_out()
    _refuse_contradictions(request)


def _refuse_contradictions(request: ChatRequest) -> None:
    """Raise `ApiError` for fields that exclude each other."""
    last = request.messages[-1]
    if request.top_logprobs is not None and not request.logprobs:
        raise invalid("top_logprobs needs logprobs: true beside it.", "top_logprobs")
    if request.response_format is not None and request.structured_outputs is not None:
        raise invalid(
            "structured_outputs and response_format exclude each other: send one of them.",
            "structured_outputs",
        )
    if request.continue_final_message and (last.role != "assistant" or last.tool_calls):
        raise invalid(
            "continue_final_message needs an assistant message without calls as the last one.",
            "continue_final_message",
        )
    if request.add_generation_prompt == request.continue_final_message:
        raise invalid(
            "add_generation_prompt must be the opposite of continue_final_message: leave it out.",
            "add_generation_prompt",
        )


def make_plan(
    request: ChatRequest,
    engine: Engine,
    tools: Registry,
    limits: Limits,
    agents: Agents = NO_AGENTS,
) -> Plan:
    """Return the plan of `request`; raise `ApiError` for a model or tool that is not served."""
    adapter = adapter_of(request.model, engine, agents)
    agents_own = AgentRequest.of(request.model, agents)
    if agents_own is None:
        return _plan(request, adapter, engine, tools, limits)
    request, tools = agents_own.asked(request), agents_own.among(tools)
    return agents_own.plan(_plan(request, adapter, engine, tools, agents_own.limits(engine)))


def _plan(
    request: ChatRequest, adapter: str | None, engine: Engine, tools: Registry, limits: Limits
) -> Plan:
    say_once(request.left_out())
    registry = selected(request.server_tools, tools)
    clients = _client_tools(request.tools, registry)
    choice = request.tool_choice
    named = choice.name if isinstance(choice, NamedChoice | CustomChoice) else None
    if named is not None:
        registry, clients = _only([named], registry, clients)
    specs = [tool.spec() for tool in clients.values()] + registry.specs()
    if isinstance(choice, AllowedChoice):
        registry, clients = _only(choice.names, registry, clients)
    custom = [tool for tool in clients.values() if isinstance(tool, CustomTool)]
    inputs, notes = enforced(((each.name, each.name, each.grammar) for each in custom), engine)
    say_once(notes)
    rule = _call_rule(request, (*clients, *registry.names), inputs)
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
            origin=named_in(request.model_extra or {}),
        ),
        sampling=sampling,
        registry=registry,
        client_tools=frozenset(clients),
        limits=bounded(limits, request.token_limit),
        forced_name=named,
        choices=request.n or 1,
        notes=tuple(notes),
    )


def _call_rule(
    request: ChatRequest, names: Sequence[str], inputs: Mapping[str, InputGrammar]
) -> CallRule | None:
    """Return which calls a turn may hold, or None if the model decides alone.

    Raises `ApiError` if a call is required and there is no tool.
    """
    choice = request.tool_choice
    allowed = choice.allowed_tools if isinstance(choice, AllowedChoice) else None
    required = choice == "required" or isinstance(choice, NamedChoice | CustomChoice)
    required = required or (allowed is not None and allowed.mode == "required")
    if required and not names:
        raise invalid("tool_choice requires a call, but the request has no tools.", "tool_choice")
    strict = frozenset(tool.name for tool in request.tools if tool.is_strict)
    rule = CallRule(
        required=required,
        single=request.parallel_tool_calls is False,
        names=tuple(names) if allowed is not None else None,
        strict=strict & set(names),
        inputs=inputs,
    )
    return None if choice == "none" or rule == CallRule() else rule


def adapter_of(asked: str, engine: Engine, agents: Agents = NO_AGENTS) -> str | None:
    """Return the LoRA adapter that a request names as its model, or None for the model itself.

    An agent has an adapter of its own, or none. Raises `ApiError` 404 for any other name.
    """
    if asked in agents:
        return agents_adapter(agents[asked], engine)
    if asked in engine.names:
        return None
    if asked in engine.adapters:
        return asked
    served = (*engine.names, *engine.adapters, *agents)
    names = ", ".join(map(repr, served))
    verb = "are" if len(served) > 1 else "is"
    message = f"The model {asked!r} is not served here; {names} {verb}."
    raise ApiError(404, message, param="model", code="model_not_found")


def selected(names: Sequence[object], tools: Registry) -> Registry:
    """Return the tools that `server_tools` names; raise `ApiError` for an unknown one."""
    try:
        return in_background(tools.select(dict.fromkeys(map(str, names))), names)
    except ValueError as error:
        raise invalid(f"server_tools: {error}.", "server_tools", "unknown_tool") from None


def in_background(registry: Registry, names: Iterable[object]) -> Registry:
    """Return the registry, with the tools in the background for which `server_tools` asks it."""
    return put_in_background(
        registry, {str(name) for name in names if isinstance(name, BackgroundName)}
    )


def put_in_background(registry: Registry, names: Collection[str]) -> Registry:
    """Return the registry, in which the named tools run in the background."""
    if not names:
        return registry
    made = [replace(tool, background=True) if tool.name in names else tool for tool in registry]
    return Registry(made, shared=registry)


def _client_tools(tools: Sequence[ChatTool], registry: Registry) -> dict[str, ChatTool]:
    """Return the client's tools by name; raise `ApiError` if two tools share a name."""
    clients: dict[str, ChatTool] = {}
    for number, tool in enumerate(tools):
        name, param = tool.name, f"tools[{number}].{tool.type}.name"
        if name in clients:
            raise invalid(f"{param}: there is already a tool named {name!r}.", param)
        if name in registry:
            raise invalid(f"{param}: {name!r} is a tool of the server's in this request.", param)
        clients[name] = tool
    return clients


def _only(
    names: Sequence[str], registry: Registry, clients: dict[str, ChatTool]
) -> tuple[Registry, dict[str, ChatTool]]:
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
