"""A request to `/v1/messages`: its schema, its blocks, and the chat request that asks for the same.

`HARMLESS` fields change nothing in the answer and are ignored. `NEUTRAL` fields may have the value
that changes nothing. Fields that are known to change the answer are refused with their names, and
all others are left out with a note. Fields that the parts of a message or of a tool do not name are
ignored.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    FiniteFloat,
    ValidationError,
    model_validator,
)
from pydantic import BeforeValidator as Before

from caesura.runtime.run.media import Content, file_text, joined, titled
from caesura.runtime.server.api.chat_request import ChatRequest, refuse_unsupported
from caesura.runtime.server.api.compaction import summary_message
from caesura.runtime.server.api.context_management import ContextManagement
from caesura.runtime.server.api.deferred import SEARCHES, told
from caesura.runtime.server.api.fields import (
    MAX_MESSAGES,
    MAX_STOPS,
    MAX_TOOLS,
    Listed,
    Name,
    NotEmpty,
    Part,
    ServerToolNames,
    in_words,
    sent_again,
    valid_schema,
)
from caesura.runtime.server.api.messages_tools import (
    AnthropicTool,
    DeclaredTool,
    result_type,
    spec_of,
)
from caesura.runtime.server.api.notes import UNSUPPORTED, left_out_of
from caesura.runtime.server.http.errors import NO_THREADS, invalid
from caesura.runtime.server.http.lineage import without_session
from caesura.scheduler.messages import ToolSpec

BILLING = "x-anthropic-billing-header"
"""Claude Code begins a block of `system` with this, and the rest of it differs in each request."""
HARMLESS = {
    "betas",
    "billing_policy",
    "cache_control",
    "inference_geo",
    "service_tier",
    "speed",
    "user_profile_id",
    "workspace_id",
}
"""Fields of Anthropic's that do not change the answer."""
NEUTRAL: Mapping[str, tuple[object, ...]] = {"mcp_servers": ([],)}
"""Unsupported fields, and the values with which they change nothing; null always does."""
_THINKING = ("thinking", "redacted_thinking")
COMPACTED = "compaction"
"""The block of a summary; one without content, of a compaction that failed, says nothing."""
LEFT_OUT = frozenset(
    {
        *("server_tool_use", "web_search_tool_result", "web_fetch_tool_result"),
        *("code_execution_tool_result", "bash_code_execution_tool_result"),
        *("text_editor_code_execution_tool_result", "tool_search_tool_result"),
        *("mcp_tool_use", "mcp_tool_result", "container_upload"),
    }
)
"""Blocks that are not shown to the model: what tools of Anthropic's own did."""
_NEEDED: Mapping[str, tuple[str, ...]] = {
    "text": ("text",),
    "tool_use": ("id", "name", "input"),
    "tool_result": ("tool_use_id",),
    "tool_reference": ("tool_name",),
    "image": ("source",),
    **dict.fromkeys(_THINKING, ()),
    COMPACTED: (),
    **dict.fromkeys(LEFT_OUT, ()),
}
"""The types of blocks, and the fields that each must have."""
_ALLOWED: Mapping[str, tuple[str, ...]] = {
    "user": ("text", "tool_result", "image", COMPACTED, *LEFT_OUT),
    "assistant": ("text", "tool_use", COMPACTED, *_THINKING, *LEFT_OUT),
    "system": ("text",),
}
"""The types of blocks that a message of a role may hold."""


def _texts(blocks: Sequence["Block"]) -> Sequence["Block"]:
    """Return the blocks of a system prompt; raise `ValueError` if one is not text."""
    for block in blocks:
        if block.type != "text":
            raise ValueError(f"a system prompt may hold text, not {block.type}")
    return blocks


def _listed(content: object) -> object:
    """Return content as a list of blocks."""
    if content is None:
        return []
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _url(source: object) -> object:
    """Return the URL of an image's source."""
    if not isinstance(source, Mapping):
        return source
    match source.get("type"):
        case "base64" if isinstance(source.get("data"), str):
            return f"data:{source.get('media_type') or 'image/png'};base64,{source['data']}"
        case "url" if isinstance(source.get("url"), str):
            return source["url"]
        case "file":
            raise ValueError("files are not kept here: send the image as base64 or url")
    raise ValueError("an image's source must be of type base64, with data, or url, with a url")


def _document(block: Mapping[str, Any]) -> str:
    """Return the text of a block `document`; raise `ValueError` for one that is no text."""
    source = block.get("source")
    given = source if isinstance(source, Mapping) else {}
    match given.get("type"):
        case "text" if isinstance(given.get("data"), str):
            text = given["data"]
        case "content":
            text = _joined_texts(given.get("content"))
        case "base64":
            text = file_text(given.get("data"), str(given.get("media_type") or ""))
        case _:
            raise ValueError("a document's source must be of type text, content, or base64 of text")
    title, context = block.get("title"), block.get("context")
    return titled(f"{title or 'Document'} ({context})" if context else title, text)


def _joined_texts(content: object) -> str:
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else [None]
    texts = [block.get("text") if isinstance(block, Mapping) else None for block in blocks]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("a document may hold text alone")
    return "\n".join(map(str, texts))


class Block(Part):
    """A content block of any type; `content` is that of a tool's result, or a summary.

    `source` is the URL of an image: its address, or a data URL. Documents and results of searches
    become blocks of text.
    """

    type: str
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: Name | None = None
    tool_name: Name | None = None
    input: dict[str, Any] | None = None
    tool_use_id: NotEmpty | None = None
    source: Annotated[str, BeforeValidator(_url)] | None = None
    content: "Blocks" = []
    is_error: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _as_text(cls, block: Any) -> Any:
        kind = block.get("type") if isinstance(block, Mapping) else None
        if kind == "document":
            return {"type": "text", "text": _document(block)}
        if kind == "search_result":
            title = f"{block.get('title') or 'Found'} ({block.get('source')})"
            return {"type": "text", "text": titled(title, _joined_texts(block.get("content")))}
        return {"type": kind} if isinstance(kind, str) and kind in LEFT_OUT else block

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.type not in _NEEDED:
            kinds = ", ".join(kind for kind in _NEEDED)
            raise ValueError(f"a block of type {self.type[:64]!r} is not read here, only {kinds}")
        for name in _NEEDED[self.type]:
            if getattr(self, name) is None:
                raise ValueError(f"a block of type {self.type} must have the field {name}")
        for block in self.content:
            if block.type not in ("text", "image", "tool_reference"):
                raise ValueError(f"a tool's result may hold text and images, not {block.type}")
        return self

    @property
    def summary(self) -> str | None:
        """The summary that the block holds, if it holds one."""
        texts = [block.text for block in self.content if block.text]
        return "\n".join(texts) if self.type == COMPACTED and texts else None


Blocks = Annotated[list[Block], Field(max_length=MAX_MESSAGES), BeforeValidator(_listed)]


Block.model_rebuild()


SystemBlocks = Annotated[Blocks, AfterValidator(_texts)]


class MessageParam(Part):
    """One message of the conversation."""

    role: str
    content: Blocks

    @model_validator(mode="after")
    def _may_hold_them(self) -> Self:
        allowed = _ALLOWED.get(self.role)
        if allowed is None:
            raise ValueError(f"role must be one of {', '.join(_ALLOWED)}, got {self.role[:64]!r}")
        for number, block in enumerate(self.content):
            if block.type not in allowed:
                raise ValueError(
                    f"content[{number}]: a message of role {self.role} may not hold {block.type}"
                )
        return self

    def records(self, tools: Mapping[str, ToolSpec]) -> list[dict[str, Any]]:
        """Return the message as chat messages: each result of a tool is a message of its own.

        A reference to one of the `tools`, by name, in a result tells the model what it is.
        """
        if self.role == "assistant":
            return [answer_record(self.content)]
        records = [_result(block, tools) for block in self.content if block.type == "tool_result"]
        shown = [block for block in self.content if block.type in ("text", "image")]
        if shown or not records:
            records.append({"role": self.role, "content": _content(shown)})
        return records


def answer_record(blocks: Sequence[Block]) -> dict[str, Any]:
    """Return an answer as a chat message, with its thinking as reasoning.

    The texts are joined without a break, since calls and citations split them in mid sentence.
    """
    text = "".join(block.text or "" for block in blocks if block.type == "text")
    calls = [
        called(block.id or "", block.name or "", block.input or {})
        for block in blocks
        if block.type == "tool_use"
    ]
    record: dict[str, Any] = {"role": "assistant", "content": text}
    thoughts = [block.thinking for block in blocks if block.type == "thinking" and block.thinking]
    if thoughts:
        record["reasoning"] = "\n\n".join(thoughts)
    return record | {"tool_calls": calls} if calls else record


def uncompacted(
    messages: Sequence[MessageParam], tools: Mapping[str, ToolSpec]
) -> list[dict[str, Any]]:
    """Return messages as chat messages, from the last compaction on if they hold one.

    `tools` are those that results may refer to, by name.
    """
    records: list[dict[str, Any]] = []
    for message in messages:
        blocks = message.content
        for at, block in enumerate(message.content):
            if block.summary is not None:
                records, blocks = [dict(summary_message(block.summary))], message.content[at + 1 :]
        blocks = [block for block in blocks if block.type != COMPACTED]
        if blocks or not message.content:
            records += message.model_copy(update={"content": blocks}).records(tools)
    return records


def called(call_id: str, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call of a chat message; equal arguments in equal order have equal texts."""
    function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
    return {"id": call_id, "type": "function", "function": function}


def system_text(blocks: Sequence[Block]) -> str:
    """Return the system prompt, without the block of Claude Code that no two requests share."""
    texts = [block.text or "" for block in blocks]
    return "\n".join(text for text in texts if not text.startswith(BILLING))


def _result(block: Block, tools: Mapping[str, ToolSpec]) -> dict[str, Any]:
    content = _content(_resolved(block.content, tools))
    if block.is_error:
        content = _as_error(content)
    return {"role": "tool", "tool_call_id": block.tool_use_id, "content": content}


def _resolved(blocks: Sequence[Block], tools: Mapping[str, ToolSpec]) -> list[Block]:
    """Return blocks with one text for all references to tools, behind the others."""
    named = [each.tool_name or "" for each in blocks if each.type == "tool_reference"]
    others = [each for each in blocks if each.type != "tool_reference"]
    found = [tools[name] for name in named if name in tools]
    return [*others, Block(type="text", text=told(found))] if named else others


def _as_error(content: Content) -> Content:
    """Return the content of a failed result, which begins with the word."""
    if not isinstance(content, str):
        return [{"type": "text", "text": "error:"}, *content]
    return content if content.lower().startswith("error") else f"error: {content}"


def _content(blocks: Sequence[Block]) -> Content:
    """Return blocks of text and images as the content of a chat message."""
    return joined(
        [
            {"type": "text", "text": block.text or ""}
            if block.type == "text"
            else {"type": "image_url", "image_url": {"url": block.source}}
            for block in blocks
        ]
    )


class ToolChoice(Part):
    """Which tools the model must or may call."""

    type: Literal["auto", "any", "none", "tool"]
    name: Name | None = None
    disable_parallel_tool_use: bool = False

    @model_validator(mode="after")
    def _names_it(self) -> Self:
        if self.type == "tool" and self.name is None:
            raise ValueError("name is missing: it names the tool to call")
        return self

    def chat(self) -> dict[str, Any]:
        """Return the choice as fields of a chat completion request."""
        named = {"type": "function", "function": {"name": self.name}}
        choice = {"any": "required", "tool": named}.get(self.type, self.type)
        single = self.disable_parallel_tool_use
        return {"tool_choice": choice, "parallel_tool_calls": False if single else None}


class Diagnostics(Part):
    """Asks why the prompt cache missed; the id is that of the client's previous message."""

    previous_message_id: str | None = None


class Metadata(Part):
    """Who asks."""

    user_id: str | None = None


class Thinking(Part):
    """Whether the model thinks; its chat template decides how. A budget is left out."""

    type: Literal["adaptive", "disabled", "enabled"]
    budget_tokens: Annotated[int, Field(ge=0)] | None = None


class OutputFormat(Part):
    """A JSON schema that the text of the answer follows."""

    type: Literal["json_schema"]
    schema_: Annotated[dict[str, Any], Field(alias="schema"), Before(valid_schema)]


class OutputConfig(Part):
    """How the model writes its answer."""

    effort: str | None = None
    format: OutputFormat | None = None


class Compaction(Part):
    """Asks for a summary of the conversation in place of an answer."""

    type: Literal["summarize"]
    instructions: str | None = None


class MessagesRequest(BaseModel):
    """The body of `POST /v1/messages`.

    `server_tools` is Caesura's own field, as in chat completions. `cache_salt` and
    `chat_template_kwargs` are vLLM's.
    """

    model: str
    max_tokens: Annotated[int, Field(ge=1)]
    messages: Annotated[list[MessageParam], Field(min_length=1, max_length=MAX_MESSAGES)]
    system: SystemBlocks = []
    tools: Annotated[list[DeclaredTool], Field(max_length=MAX_TOOLS), Listed] = []
    tool_choice: ToolChoice | None = None
    server_tools: ServerToolNames = []
    stream: bool | None = None
    stop_sequences: Annotated[list[NotEmpty], Field(max_length=MAX_STOPS), Listed] = []
    temperature: Annotated[FiniteFloat, Field(ge=0, le=2)] | None = None
    top_p: Annotated[FiniteFloat, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1)] | None = None
    metadata: Metadata | None = None
    diagnostics: Diagnostics | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    compaction: Compaction | None = None
    context_management: ContextManagement | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    cache_salt: NotEmpty | None = None

    model_config = ConfigDict(extra="allow", frozen=True)

    @property
    def head(self) -> list[dict[str, Any]]:
        """The system prompt as chat messages: one, or none."""
        system = system_text(self.system)
        return [{"role": "system", "content": system}] if system else []

    def chat(self) -> ChatRequest:
        """Return the chat completion request that asks for the same."""
        messages = [*self.head, *uncompacted(self.messages, self.specs)]
        user = None if self.metadata is None else self.metadata.user_id
        fields: dict[str, Any] = {
            "model": self.model,
            "messages": messages,
            "tools": [tool for tool in self._functions() if _name_of(tool) not in self.deferred],
            "server_tools": sent_again(self.server_tools),
            "max_tokens": self.max_tokens,
            "stop": self.stop_sequences,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "user": without_session(user),
            "metadata": {"user_id": user},  # which names the session
            "chat_template_kwargs": self._template(),
            "cache_salt": self.cache_salt,
            "continue_final_message": messages[-1]["role"] == "assistant",
        }
        if self.tool_choice is not None:
            fields |= self.tool_choice.chat()
        return ChatRequest.model_validate(fields | self._output())

    def _functions(self) -> list[dict[str, Any]]:
        """Return the tools that the client runs, in the form of chat completions."""
        return [shown for tool in self.tools if (shown := tool.function()) is not None]

    @cached_property
    def specs(self) -> dict[str, ToolSpec]:
        """The tools that the client runs, by name."""
        return {_name_of(tool): spec_of(tool) for tool in self._functions()}

    @cached_property
    def deferred(self) -> frozenset[str]:
        """The names of the client's tools that the prompt does not list.

        They are listed where no other tool could find them, and where one has to be called.
        """
        late = {tool.name for tool in self.tools if tool.defer_loading and tool.name in self.specs}
        chosen = None if self.tool_choice is None else self.tool_choice.name
        searched = any(tool.kind in SEARCHES for tool in self._typed())
        if not searched and late >= self.specs.keys():
            return frozenset()
        return frozenset(name for name in late if name is not None and name != chosen)

    def _typed(self) -> list[AnthropicTool]:
        return [tool for tool in self.tools if isinstance(tool, AnthropicTool)]

    def hosted(self, run_here: Collection[str]) -> dict[str, AnthropicTool]:
        """Return the declared tools that this server runs, by name."""
        return {tool.kind: tool for tool in self._typed() if tool.kind in run_here}

    def left_out(self, run_here: Collection[str] = ()) -> list[str]:
        """Return what is left out; raise `ApiError` for a field that cannot be.

        `run_here` names the tools of Anthropic's that this server runs.
        """
        notes = left_out_of(self.model_extra, harmless=HARMLESS, neutral=NEUTRAL, refused=REFUSED)
        if self.thinking is not None and self.thinking.budget_tokens is not None:
            notes.append("field thinking.budget_tokens")
        notes += [note for tool in self._typed() for note in tool.left_out(run_here)]
        own = [result_type(name) for name in self.hosted(run_here)]
        left_out = LEFT_OUT - {"server_tool_use", *own} if own else LEFT_OUT
        blocks = (block.type for message in self.messages for block in message.content)
        return [*notes, *dict.fromkeys(f"block {kind}" for kind in blocks if kind in left_out)]

    def _template(self) -> dict[str, Any] | None:
        if self.thinking is None:
            return self.chat_template_kwargs
        thinks = {"enable_thinking": self.thinking.type != "disabled"}
        return thinks | (self.chat_template_kwargs or {})

    def _output(self) -> dict[str, Any]:
        config = self.output_config or OutputConfig()
        fields: dict[str, Any] = {"reasoning_effort": config.effort}
        if config.format is not None:
            schema = {"name": "answer", "schema": config.format.schema_}
            fields["response_format"] = {"type": "json_schema", "json_schema": schema}
        return fields


def _name_of(function: Mapping[str, Any]) -> str:
    return str(function["function"]["name"])


REFUSED = UNSUPPORTED | set(ChatRequest.model_fields) | {"container", "thread"}
"""Fields that change the answer and that are refused, those of chat completions among them."""


def parse(body: bytes | str) -> tuple[MessagesRequest, ChatRequest]:
    """Return the request in a body, and as one of chat; raise `ApiError` naming a wrong field."""
    try:
        request = MessagesRequest.model_validate_json(body)
    except ValidationError as error:
        raise in_words(error) from None
    if (request.model_extra or {}).get("thread") is not None:
        raise invalid("thread is not supported: send all messages.", "thread", NO_THREADS)
    request.left_out()
    _refuse_conflicts(request)
    try:
        chat = request.chat()
    except ValidationError as error:
        raise in_words(error) from None
    refuse_unsupported(chat)
    return request, chat


def parse_count(body: bytes) -> tuple[MessagesRequest, ChatRequest]:
    """Return the request in a body whose tokens are counted, which has no `max_tokens`."""
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        return parse(body)  # which says what is wrong
    return parse(json.dumps({**given, "max_tokens": 1}) if isinstance(given, dict) else body)


def _refuse_conflicts(request: MessagesRequest) -> None:
    """Raise `ApiError` for tools of one name, and for fields that cannot be honoured."""
    names = set(request.server_tools)
    for number, tool in enumerate(request.tools):
        name = tool.name or tool.type or ""
        if name in names:
            param = f"tools[{number}].name"
            raise invalid(f"{param}: there is already a tool named {name!r}.", param)
        names.add(name)
    if request.compaction is not None and request.context_management is not None:
        raise invalid("compaction cannot be combined with context_management.", "compaction")
    last = request.messages[-1]
    if last.role == "assistant" and any(block.type == "tool_use" for block in last.content):
        raise invalid(
            "The last message calls tools: send their results behind it, as tool_result blocks.",
            "messages",
        )
