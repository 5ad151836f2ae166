"""Items as chat messages, which the model reads, and compactions, which stand for many items."""

import base64
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from caesura.runtime.run.fold import CANCELLED, acknowledgement, late_message, tool_message
from caesura.runtime.run.media import Content
from caesura.runtime.server.api.compaction import summary_message
from caesura.runtime.server.api.custom import arguments_of
from caesura.runtime.server.api.deferred import told as told_of
from caesura.runtime.server.api.hosted import PYTHON
from caesura.runtime.server.http.errors import invalid
from caesura.runtime.server.responses.ids import turn_and_call
from caesura.runtime.server.responses.items import (
    ACTIONS,
    SEARCHES,
    code_result,
    content_of,
    is_clients_search,
    text_of,
)
from caesura.runtime.server.responses.store import Item
from caesura.runtime.server.responses.tools import NAMESPACE_SEPARATOR, found_in
from caesura.scheduler.messages import Message
from caesura.tools.code.shell import Outcome, result_of

_CALLS = {"function_call", "custom_tool_call", "tool_search_call", *ACTIONS}
_OUTPUTS = {
    "function_call_output",
    "custom_tool_call_output",
    "tool_search_output",
    *(f"{kind}_output" for kind in ACTIONS),
}
DENIED = "error: a person denied this call"
UNDECIDED = "error: cancelled: no person decided about this call"


def flat_name(item: Mapping[str, Any]) -> str:
    """Return the name under which the model knows the function of a client's call."""
    if "name" not in item:  # a kind of tool that has but one
        return str(item["type"]).removesuffix("_call")
    namespace = item.get("namespace")
    return f"{namespace}{NAMESPACE_SEPARATOR}{item['name']}" if namespace else str(item["name"])


def messages_of(
    items: Iterable[Item], before: Sequence[Message] = (), goes_on: Collection[str] = ()
) -> list[Message]:
    """Return the chat messages of `items`, which follow the messages `before`.

    `goes_on` are those calls in them for whose results the model does not wait. An output of such
    a call that comes behind other messages is a late one.

    Calls belong to the assistant's message before them. A call by the server carries its result.
    Reasoning belongs to the assistant's message or the calls behind it. Lists of tools, items of
    the types `LEFT_OUT` but code with its outputs, and searches of tools that OpenAI ran, are not
    shown to the model. Raises `ApiError` 400 for an output whose call is not among the items.
    """
    writer = _Writer(before, goes_on)
    for item in items:
        if item["type"] not in SEARCHES or is_clients_search(item):
            writer.take(item)
    return writer.finished()


class _Writer:
    """Chat messages under construction."""

    def __init__(self, before: Sequence[Message], goes_on: Collection[str]) -> None:
        self._messages: list[dict[str, Any]] = []
        self._names = dict(_names_of(before))
        self._answered = {each.get("tool_call_id") for each in before}
        """The calls that have a result, or something in its place."""
        self._going_on = {
            call_id: name
            for call_id, name in self._names.items()
            if call_id in goes_on and call_id not in self._answered
        }
        """The names of calls in the background of which the model was told nothing yet."""
        self._turn = ""
        """The turn of the server calls that were taken last."""
        self._caller: dict[str, Any] | None = None
        """The assistant's message that takes further calls of the same turn."""
        self._thoughts: list[str] = []
        """The reasoning of the assistant's next message."""
        self._requests: dict[str, Item] = {}
        """The approval requests whose calls are not among the messages yet."""

    def take(self, item: Item) -> None:
        match item["type"]:
            case "message":
                self._settle()
                self._message(item)
            case "reasoning":
                self._reasoning(item)
            case kind if kind in _CALLS:
                self._clients_call(item, flat_name(item), _arguments(item))
            case kind if kind in _OUTPUTS:
                self._output(item)
            case "mcp_call":
                self._server_call(item)
            case "code_interpreter_call" if (told := code_result(item)) is not None:
                arguments = json.dumps({"code": item["code"]}, ensure_ascii=False)
                self._clients_call({"call_id": item["id"]}, PYTHON, arguments)
                self._result(item["id"], PYTHON, told)
            case "mcp_approval_request":
                self._requests[item["id"]] = item
            case "mcp_approval_response":
                self._decision(item)
            case "compaction":
                self._add(compacted_message(item))

    def finished(self) -> list[Message]:
        self._settle()
        self._acknowledge()
        return list(self._messages)

    def _reasoning(self, item: Item) -> None:
        parts = item.get("content")
        if isinstance(parts, list):  # another server's may be of any form
            told = [part for part in parts if isinstance(part, Mapping) and "text" in part]
            text = text_of([{"text": part["text"]} for part in told])
            self._thoughts += [text] if text else []

    def _take_thoughts(self, message: dict[str, Any]) -> None:
        """Give the reasoning so far to an assistant's message."""
        if self._thoughts:
            before = [message["reasoning"]] if "reasoning" in message else []
            message["reasoning"] = "\n\n".join([*before, *self._thoughts])
        self._thoughts = []

    def _message(self, item: Item) -> None:
        role = "system" if item["role"] == "developer" else item["role"]
        content = content_of(item["content"]) if role == "user" else text_of(item["content"])
        self._add({"role": role, "content": content})
        self._caller = self._messages[-1] if role == "assistant" else None

    def _acknowledge(self) -> None:
        """Tell the model of the calls in the background, behind which it goes on."""
        going_on, self._going_on = self._going_on, {}
        for call_id, name in going_on.items():
            self._result(call_id, name, acknowledgement(call_id, name))

    def _add(self, message: Mapping[str, Any]) -> None:
        self._acknowledge()
        added = dict(message)
        if added["role"] == "assistant":
            self._take_thoughts(added)
        self._thoughts = []
        self._messages.append(added)
        self._caller, self._turn = None, ""

    def _clients_call(self, item: Item, name: str, arguments: str) -> None:
        if self._turn:  # the results of a turn of server calls end that turn
            self._caller, self._turn = None, ""
        self._call(item["call_id"], name, arguments)
        if item.get("async"):
            self._going_on[item["call_id"]] = name

    def _call(self, call_id: str, name: str, arguments: str) -> None:
        if self._caller is None:
            self._add({"role": "assistant", "content": ""})
            self._caller = self._messages[-1]
        self._take_thoughts(self._caller)
        function = {"name": name, "arguments": arguments}
        call = {"id": call_id, "type": "function", "function": function}
        self._caller.setdefault("tool_calls", []).append(call)
        self._names[call_id] = name

    def _output(self, item: Item) -> None:
        name = self._names.get(item["call_id"])
        if name is None:
            raise invalid(
                f"input: there is no call with the call_id {item['call_id'][:80]!r}: "
                "send the call before its output, or the previous_response_id of its response.",
                "input",
            )
        self._result(item["call_id"], name, _output_of(item))
        self._caller, self._turn = None, ""

    def _result(self, call_id: str, name: str, content: Content) -> None:
        self._going_on.pop(call_id, None)
        told = late_message if call_id in self._answered else tool_message
        self._answered.add(call_id)
        self._messages.append(dict(told(call_id, name, content)))

    def _server_call(self, item: Item) -> None:
        self._requests.pop(str(item.get("approval_request_id")), None)
        turn, call_id = turn_and_call(item["id"])
        if self._turn and self._turn != turn:
            self._caller = None  # the results of an earlier turn stand between
        self._call(call_id, item["name"], item["arguments"])
        caller = self._caller
        self._result(call_id, item["name"], _content(item))
        self._caller, self._turn = caller, turn or call_id

    def _decision(self, item: Item) -> None:
        request = self._requests.get(item["approval_request_id"])
        if request is not None and not item["approve"]:
            reason = f": {item['reason']}" if item.get("reason") else ""
            self._unmade(request, f"{DENIED}{reason}")

    def _settle(self) -> None:
        """Write the calls about which no person decided, before another message follows."""
        for request in list(self._requests.values()):
            self._unmade(request, UNDECIDED)

    def _unmade(self, request: Item, content: str) -> None:
        del self._requests[request["id"]]
        call_id = request["id"][-9:]
        self._call(call_id, request["name"], request["arguments"])
        self._result(call_id, request["name"], content)
        self._caller, self._turn = None, ""


def _output_of(item: Item) -> Content:
    if item["type"] == "tool_search_output":
        return told_of([function.spec(namespace) for function, namespace in found_in(item)])
    if item["type"] == "shell_call_output" and (text := _shell_result(item["output"])) is not None:
        return text
    return content_of(item["output"])


def _shell_result(output: Any) -> str | None:
    """Return a command's output as the model read it, or None if it has another form."""
    try:
        (one,) = json.loads(output) if isinstance(output, str) else output
        outcome = one["outcome"]
        code = int(outcome["exit_code"]) if outcome["type"] == "exit" else None
        return result_of(Outcome(code, str(one["stdout"]), str(one["stderr"])))
    except (ValueError, TypeError, KeyError):
        return None


def _arguments(item: Item) -> str:
    """Return the arguments of a client's call, as the model wrote or would have written them."""
    match item["type"]:
        case "function_call":
            return str(item["arguments"])
        case "custom_tool_call":
            return arguments_of(item["input"])
        case "tool_search_call":
            return json.dumps(item["arguments"], ensure_ascii=False)
        case "shell_call" if isinstance(commands := item["action"].get("commands"), list):
            return json.dumps({"command": "\n".join(map(str, commands))}, ensure_ascii=False)
        case kind:
            return json.dumps(item[ACTIONS[kind]], ensure_ascii=False)


def _names_of(messages: Sequence[Message]) -> Iterable[tuple[str, str]]:
    for message in messages:
        for call in message.get("tool_calls") or ():
            yield call["id"], call["function"]["name"]


def _content(item: Item) -> str:
    """Return the result of a server call, as the model saw it."""
    error = item.get("error")
    if error is None:
        return CANCELLED if item.get("output") is None else str(item["output"])
    told = error.get("content", error.get("message")) if isinstance(error, Mapping) else error
    return told if isinstance(told, str) else json.dumps(told, ensure_ascii=False)


def with_instructions(instructions: str | None, messages: Sequence[Message]) -> list[Message]:
    """Return the messages behind the instructions."""
    if not instructions:
        return list(messages)
    return [{"role": "system", "content": instructions}, *messages]


def encoded_summary(summary: str) -> str:
    """Return the content of a compaction, which is encoded and not encrypted."""
    return base64.urlsafe_b64encode(json.dumps({"summary": summary}).encode()).decode()


def compacted_message(item: Mapping[str, Any]) -> Message:
    """Return the message that shows a compaction to the model.

    Raises `ApiError` 400 for content that this server did not make.
    """
    try:
        text = base64.b64decode(item["encrypted_content"].encode(), b"-_", validate=True)
        summary = json.loads(text)["summary"]
    except (ValueError, KeyError, TypeError):
        raise invalid(
            "input: the encrypted_content of a compaction is not of this server: send the item as "
            "POST /v1/responses/compact returned it.",
            "input",
        ) from None
    return summary_message(str(summary))
