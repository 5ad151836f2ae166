"""The items of a response's output, and the events of a stream for them.

An item's events are kept back while an earlier item is open. Clients that follow the item that
was opened last would otherwise lose the parts of interleaved items. The events of a response that
has ended are made again from what is stored, where each text comes in one piece.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from caesura.intercept.calls.events import TokenLogprob
from caesura.runtime.server.api.chat_answer import shown_logprob
from caesura.runtime.server.api.custom import InputReader, input_of
from caesura.runtime.server.responses import ids
from caesura.runtime.server.responses.store import Item
from caesura.tools.search.web import pages_in

SOURCES, RESULTS = "web_search_call.action.sources", "web_search_call.results"
Event = dict[str, Any]
"""One event of a response's stream; `type` names its kind."""


class Outputs:
    """The output items of one response, and their events in the order of sending."""

    def __init__(self, response_id: str) -> None:
        self.ids = ids.Derived(response_id)
        """The ids of the items, the same whenever the response is made again."""
        self._items: list[OutputItem] = []
        self._open = 0
        """The number of the first item that is not closed, whose events may be sent."""

    def add(self, item: "OutputItem") -> int:
        """Add an item behind the others; return its `output_index`."""
        self._items.append(item)
        return len(self._items) - 1

    def take(self) -> list[Event]:
        """Return the events that can be sent now, and forget them."""
        events: list[Event] = []
        for item in self._items[self._open :]:
            events += item.waiting
            item.waiting.clear()
            if not (item.is_closed or item.is_passed):
                break
        while self._open < len(self._items) and self._items[self._open].is_closed:
            self._open += 1
        return events

    @property
    def unclosed(self) -> "list[OutputItem]":
        """The items that are still open, the first one first."""
        return [item for item in self._items if not item.is_closed]

    def records(self) -> list[Item]:
        """Return the items in their present state."""
        return [item.record() for item in self._items]

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self._items)


class OutputItem:
    """One output item. A subclass adds the events between its opening and its closing."""

    def __init__(self, outputs: Outputs, item: Item) -> None:
        self.waiting: list[Event] = []
        """The events that were not sent yet."""
        self.is_closed = False
        self.is_passed = False
        """Whether events of later items are sent before it is closed."""
        self._item = item
        self._index = outputs.add(self)
        self._say("response.output_item.added", item=self.record())

    @property
    def id(self) -> str:
        """The item's id."""
        return str(self._item["id"])

    def record(self) -> Item:
        """Return the item in its present state."""
        return dict(self._item)

    def abandon(self) -> None:
        """Close the item before it is complete."""
        self._close()

    def _close(self) -> None:
        self.is_closed = True
        fields = {"output_index": self._index, "item": self.record()}
        self.waiting.append({"type": "response.output_item.done", **fields})

    def _say(self, kind: str, **fields: Any) -> None:
        """Keep an event for sending; `output_item` events name the item by itself."""
        event: Event = {"type": kind, "output_index": self._index}
        if "item" not in fields:
            event["item_id"] = self.id
        self.waiting.append(event | fields)


class MessageItem(OutputItem):
    """A message of the model, with one part of text."""

    def __init__(self, outputs: Outputs) -> None:
        item = {
            "type": "message",
            "id": outputs.ids.item(ids.MESSAGE),
            "status": "in_progress",
            "role": "assistant",
            "content": [],
        }
        self._text: list[str] = []
        self._logprobs: list[dict[str, Any]] = []
        super().__init__(outputs, item)
        self._say("response.content_part.added", content_index=0, part=self._part(""))

    def write(self, text: str, logprobs: Sequence[TokenLogprob] = ()) -> None:
        """Append text, and the probabilities of its tokens if the client wants them."""
        told = list(map(shown_logprob, logprobs))
        self._text.append(text)
        self._logprobs += told
        self._say("response.output_text.delta", content_index=0, delta=text, logprobs=told)

    def close(self, status: str = "completed") -> None:
        """Close the message."""
        text = "".join(self._text)
        part = self._part(text)
        told = part["logprobs"]
        self._say("response.output_text.done", content_index=0, text=text, logprobs=told)
        self._say("response.content_part.done", content_index=0, part=part)
        self._item |= {"status": status, "content": [part]}
        self._close()

    def abandon(self) -> None:
        """Close the message as incomplete."""
        self.close("incomplete")

    def record(self) -> Item:
        """Return the message with the text so far."""
        if self.is_closed or not self._text:
            return dict(self._item)
        return self._item | {"content": [self._part("".join(self._text))]}

    def _part(self, text: str) -> Item:
        logprobs = list(self._logprobs)
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}


class ReasoningItem(OutputItem):
    """What the model thought, with one part of text.

    `seal` encrypts it for clients that bring back nothing else.
    """

    def __init__(self, outputs: Outputs, seal: Callable[[str], str] | None = None) -> None:
        item = {
            "type": "reasoning",
            "id": outputs.ids.item(ids.REASONING),
            "status": "in_progress",
            "summary": [],
            "content": [],
        }
        self._text: list[str] = []
        self._seal = seal
        super().__init__(outputs, item)
        self._say("response.content_part.added", content_index=0, part=_reasoning_part(""))

    def write(self, text: str) -> None:
        """Append text."""
        self._text.append(text)
        self._say("response.reasoning_text.delta", content_index=0, delta=text)

    def close(self, status: str = "completed") -> None:
        """Close the reasoning."""
        text = "".join(self._text)
        part = _reasoning_part(text)
        self._say("response.reasoning_text.done", content_index=0, text=text)
        self._say("response.content_part.done", content_index=0, part=part)
        if self._seal is not None:
            self._item["encrypted_content"] = self._seal(text)
        self._item |= {"status": status, "content": [part]}
        self._close()

    def abandon(self) -> None:
        """Close the reasoning as incomplete."""
        self.close("incomplete")

    def record(self) -> Item:
        """Return the reasoning with the text so far."""
        if self.is_closed or not self._text:
            return dict(self._item)
        return self._item | {"content": [_reasoning_part("".join(self._text))]}


def _reasoning_part(text: str) -> Item:
    return {"type": "reasoning_text", "text": text}


class CallItem(OutputItem):
    """A call of a client's tool."""

    kind, field, prefix = "function_call", "arguments", ids.CALL

    def __init__(self, outputs: Outputs, call_id: str, name: str, namespace: str | None) -> None:
        item = {
            "type": self.kind,
            "id": outputs.ids.item(self.prefix),
            "status": "in_progress",
            "call_id": call_id,
            "name": name,
            self.field: "",
        }
        if namespace:
            item["namespace"] = namespace
        super().__init__(outputs, item)

    def goes_on(self) -> None:
        """Tell that the model goes on while the client runs the call."""
        self._item["async"] = True

    def write(self, text: str) -> None:
        """Append a part of the arguments."""
        if text:
            self._item[self.field] += text
            self._say(f"response.{self.kind}_{self.field}.delta", delta=text)

    def close(self, arguments: str, status: str = "completed") -> None:
        """Close the call; `arguments` count if no part of them was written before."""
        if not self._item["arguments"]:
            self.write(arguments)
        done = {"name": self._item["name"], "arguments": self._item["arguments"]}
        self._end(status, **done)

    def _end(self, status: str, **done: str) -> None:
        self._say(f"response.{self.kind}_{self.field}.done", **done)
        self._item["status"] = status
        self._close()

    def abandon(self) -> None:
        """Close the call as incomplete."""
        self.close("", "incomplete")


class CustomCallItem(CallItem):
    """A call of a client's `custom` tool; the model writes its input as the only argument."""

    kind, field, prefix = "custom_tool_call", "input", ids.CUSTOM_CALL

    def __init__(self, outputs: Outputs, call_id: str, name: str, namespace: str | None) -> None:
        self._reader = InputReader()
        super().__init__(outputs, call_id, name, namespace)

    def write(self, text: str) -> None:
        """Append what a part of the arguments adds to the input."""
        super().write(self._reader.push(text))

    def close(self, arguments: str, status: str = "completed") -> None:
        """Close the call; the rest of the input counts where its begin was written before."""
        whole, written = input_of(arguments), self._item["input"]
        if whole.startswith(written):
            super().write(whole[len(written) :])
        self._end(status, input=self._item["input"])


class ToolSearchItem(OutputItem):
    """A search of deferred tools, which the client runs; its arguments come in one piece."""

    def __init__(self, outputs: Outputs, call_id: str) -> None:
        item: Item = {
            "type": "tool_search_call",
            "id": outputs.ids.item(ids.TOOL_SEARCH_CALL),
            "status": "in_progress",
            "call_id": call_id,
            "execution": "client",
            "arguments": {},
        }
        super().__init__(outputs, item)

    def close(self, arguments: str, status: str = "completed") -> None:
        """Close the search with its arguments."""
        self._item |= {"arguments": object_in(arguments), "status": status}
        self._close()

    def abandon(self) -> None:
        """Close the search as incomplete."""
        self.close("", "incomplete")


class ServerCallItem(OutputItem):
    """A call that the server runs, in the form of a call of an MCP server's tool."""

    def __init__(self, outputs: Outputs, item_id: str, name: str, label: str) -> None:
        item = {
            "type": "mcp_call",
            "id": item_id,
            "status": "in_progress",
            "name": name,
            "arguments": "",
            "server_label": label,
            "approval_request_id": None,
            "output": None,
            "error": None,
        }
        super().__init__(outputs, item)
        self._say("response.mcp_call.in_progress")
        self._is_written = False

    def write(self, text: str) -> None:
        """Append a part of the arguments."""
        if text and not self._is_written:
            self._item["arguments"] += text
            self._say("response.mcp_call_arguments.delta", delta=text)

    def written(self, arguments: str) -> None:
        """End the arguments, which count if no part of them was written before."""
        if not self._item["arguments"]:
            self.write(arguments)
        self._is_written = True
        self._say("response.mcp_call_arguments.done", arguments=self._item["arguments"])

    def close(
        self,
        output: str | None,
        error: Mapping[str, Any] | None = None,
        approval_request_id: str | None = None,
    ) -> None:
        """Close the call with its result: an output, or an error in OpenAI's form."""
        self._item |= {
            "status": "completed" if error is None else "failed",
            "output": output,
            "error": None if error is None else dict(error),
            "approval_request_id": approval_request_id,
        }
        self._say(f"response.mcp_call.{self._item['status']}")
        self._close()

    def abandon(self) -> None:
        """Close the call without a result, since the run ended before it returned."""
        if not self._is_written:
            self.written("")
        self._item["status"] = "incomplete"
        self._say("response.mcp_call.failed")
        self._close()


class SearchItem(OutputItem):
    """A search of the web that the server runs, in the form of OpenAI's own.

    `include` is that of the request: the sources and the results are told where it names them.
    """

    def __init__(self, outputs: Outputs, arguments: str, include: Sequence[str]) -> None:
        query = str(object_in(arguments).get("query") or "")
        self._include = include
        item = {
            "type": "web_search_call",
            "id": outputs.ids.item(ids.WEB_SEARCH_CALL),
            "status": "in_progress",
            "action": {"type": "search", "query": query, "queries": [query]},
        }
        super().__init__(outputs, item)
        self._say("response.web_search_call.in_progress")
        self._say("response.web_search_call.searching")
        self._item["status"] = "searching"

    def close(self, result: str | None) -> None:
        """Close the search with the result that the model reads, or with None if it failed."""
        pages = pages_in(result or "")
        if SOURCES in self._include:
            sources = [{"type": "url", "url": page.source} for page in pages]
            self._item["action"] = self._item["action"] | {"sources": sources}
        if RESULTS in self._include:
            self._item["results"] = [
                {
                    "type": "text_result",
                    "title": page.title,
                    "url": page.source,
                    "snippet": page.text,
                }
                for page in pages
            ]
        self._item["status"] = "failed" if result is None else "completed"
        if result is not None:
            self._say("response.web_search_call.completed")
        self._close()

    def abandon(self) -> None:
        """Close the search without a result, since the run ended before it returned."""
        self._item["status"] = "incomplete"
        self._close()


def object_in(arguments: str) -> dict[str, Any]:
    """Return the object that a call's arguments are; an empty one for any other text."""
    try:
        given = json.loads(arguments)
    except ValueError:
        return {}
    return given if isinstance(given, dict) else {}


class CompactionItem(OutputItem):
    """The summary of a conversation, which clients send back in place of it."""

    def __init__(self, outputs: Outputs) -> None:
        item = {
            "type": "compaction",
            "id": outputs.ids.item(ids.COMPACTION),
            "encrypted_content": "",
        }
        super().__init__(outputs, item)
        self._say("response.compaction.compacting")

    def close(self, content: str) -> None:
        """Close the item with its content."""
        self._item["encrypted_content"] = content
        self._close()


class ListToolsItem(OutputItem):
    """The list of the server's tools that the model sees."""

    def __init__(self, outputs: Outputs, label: str, tools: list[Item]) -> None:
        item: Item = {
            "type": "mcp_list_tools",
            "id": outputs.ids.item(ids.LIST_TOOLS),
            "server_label": label,
            "tools": [],
            "error": None,
        }
        super().__init__(outputs, item)
        self._say("response.mcp_list_tools.in_progress")
        self._item["tools"] = tools
        self._say("response.mcp_list_tools.completed")
        self._close()


class ApprovalItem(OutputItem):
    """A request to approve a call of a tool of the server."""

    def __init__(
        self, outputs: Outputs, approval_id: str, name: str, arguments: str, label: str
    ) -> None:
        item = {
            "type": "mcp_approval_request",
            "id": approval_id,
            "name": name,
            "arguments": arguments,
            "server_label": label,
        }
        super().__init__(outputs, item)
        self._close()


def command_events(commands: Sequence[str]) -> list[dict[str, Any]]:
    """Return the events that tell the commands of a call of the shell."""
    events = []
    for number, command in enumerate(commands):
        told: dict[str, Any] = {"command_index": number}
        kind = "response.shell_call_command"
        events.append({"kind": f"{kind}.added", "command": "", **told})
        events.append({"kind": f"{kind}.delta", "delta": command, **told})
        events.append({"kind": f"{kind}.done", "command": command, **told})
    return events


_NOT_YET = dict.fromkeys(("completed_at", "error", "incomplete_details", "usage")) | {"output": []}
"""What a response tells only when it has ended, as it is before."""
_EMPTY: dict[str, Any] = {
    "status": "in_progress",
    "content": [],
    "arguments": "",
    "input": "",
    "output": None,
    "error": None,
    "approval_request_id": None,
    "tools": [],
    "encrypted_content": "",
}
"""The fields of an item that are filled while it is open."""


def events_again(whole: Item, after: int = -1) -> list[Event]:
    """Return the events of a response that has ended.

    A client that has the events up to the number `after` gets the last one alone, which holds the
    whole output. The numbers of the others depend on the pieces that it had.
    """
    # A cancelled response ends with this event too.
    ending = "incomplete" if whole["status"] == "cancelled" else whole["status"]
    last: Event = {"type": f"response.{ending}", "response": whole}
    if after >= 0:
        return [last | {"sequence_number": after + 1}]
    begun = {key: value for key, value in whole.items() if key != "caesura"} | _NOT_YET
    first = "queued" if whole["background"] else "in_progress"
    statuses = {"created": first, first: first, "in_progress": "in_progress"}
    outputs = Outputs(whole["id"])
    for item in whole["output"]:
        _Again(outputs, item)
    events: list[Event] = [
        {"type": f"response.{kind}", "response": begun | {"status": status}}
        for kind, status in statuses.items()
    ]
    events += [*outputs.take(), last]
    return [event | {"sequence_number": number} for number, event in enumerate(events)]


_STATES = {
    "compaction": ("compacting",),
    "mcp_list_tools": ("in_progress", "completed"),
    "web_search_call": ("in_progress", "searching", "completed"),
}
"""The events of items that have no text, by the type of the item."""


def _begun(item: Item) -> Item:
    """Return an item as it was when it was opened."""
    match item["type"]:
        case "mcp_approval_request":
            return item
        case "tool_search_call":
            return item | {"status": "in_progress", "arguments": {}}
        case "code_interpreter_call":
            return item | {"status": "in_progress", "code": "", "outputs": None}
        case "shell_call":
            return item | {"status": "in_progress"}
        case "shell_call_output":
            return item | {"status": "in_progress", "output": []}
        case "web_search_call":
            told = {key: value for key, value in item["action"].items() if key != "sources"}
            begun = {key: value for key, value in item.items() if key != "results"}
            return begun | {"status": "in_progress", "action": told}
    return item | {key: _EMPTY[key] for key in item if key in _EMPTY}


class _Again(OutputItem):
    """An item that was closed before."""

    def __init__(self, outputs: Outputs, item: Item) -> None:
        kind = item["type"]
        super().__init__(outputs, _begun(item))
        if kind in ("message", "reasoning"):
            for number, part in enumerate(item["content"]):
                self._fill(number, part)
        elif kind == "function_call":
            self._call("function_call_arguments", item["arguments"], name=item["name"])
        elif kind == "custom_tool_call":
            self._call("custom_tool_call_input", item["input"], field="input")
        elif kind == "mcp_call":
            self._say("response.mcp_call.in_progress")
            self._call("mcp_call_arguments", item["arguments"])
            ending = "completed" if item["status"] == "completed" else "failed"
            self._say(f"response.mcp_call.{ending}")
        elif kind == "code_interpreter_call":
            self._pass(("in_progress",), True)
            self._call("code_interpreter_call_code", item["code"], field="code")
            self._pass(("interpreting", "completed"), item["status"] == "completed")
        elif kind == "shell_call":
            for each in command_events(item["action"]["commands"]):
                self._say(**each)
        elif kind == "shell_call_output":
            done = "response.shell_call_output_content.done"
            self._say(done, command_index=0, output=item["output"])
        else:
            self._pass(_STATES.get(kind, ()), item.get("status") in (None, "completed"))
        self._item = item
        self._close()

    def _pass(self, states: Sequence[str], has_completed: bool) -> None:
        for state in states:
            if has_completed or state != "completed":
                self._say(f"response.{self._item['type']}.{state}")

    def _fill(self, number: int, part: Item) -> None:
        kind, text = f"response.{part['type']}", part["text"]
        told = {"logprobs": part["logprobs"]} if "logprobs" in part else {}
        empty = part | {"text": ""} | {key: [] for key in told}
        self._say("response.content_part.added", content_index=number, part=empty)
        if text:
            self._say(f"{kind}.delta", content_index=number, delta=text, **told)
        self._say(f"{kind}.done", content_index=number, text=text, **told)
        self._say("response.content_part.done", content_index=number, part=part)

    def _call(self, kind: str, text: str, field: str = "arguments", **named: str) -> None:
        if text:
            self._say(f"response.{kind}.delta", delta=text)
        self._say(f"response.{kind}.done", **named, **{field: text})
