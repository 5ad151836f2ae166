"""The events of a response that has ended, made again from the response object.

What is stored does not tell how texts were cut into pieces, so each of them comes in one piece.
"""

from typing import Any

from caesura.runtime.server.responses.items.given import Item
from caesura.runtime.server.responses.items.output import Event, OutputItem, Outputs

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


class _Again(OutputItem):
    """An item that was closed before."""

    def __init__(self, outputs: Outputs, item: Item) -> None:
        kind = item["type"]
        filled = {} if kind == "mcp_approval_request" else _EMPTY
        super().__init__(outputs, item | {key: filled[key] for key in item if key in filled})
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
        elif kind == "mcp_list_tools":
            self._say("response.mcp_list_tools.in_progress")
            self._say("response.mcp_list_tools.completed")
        self._item = item
        self._close()

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
