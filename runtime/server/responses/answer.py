"""One response, built from a run's events: the stream's events, and the response object.

The response shows calls of the client's tools. It shows calls that the server runs only if the
request named these tools in the form of an MCP server.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from caesura.intercept.calls.events import (
    CallFinished,
    CallMalformed,
    CallStarted,
    TextDelta,
    TurnEnded,
)
from caesura.runtime.events import CallGoesOn, RunEvent, ToolReturned
from caesura.runtime.run.fold import RunFold
from caesura.runtime.server.http.errors import ApiError
from caesura.runtime.server.keys.key import sealed
from caesura.runtime.server.load.diagnosis import Diagnosis
from caesura.runtime.server.responses import ids
from caesura.runtime.server.responses.code_items import CodeItem, ShellItem, ShellOutputItem
from caesura.runtime.server.responses.messages import encoded_summary
from caesura.runtime.server.responses.output import (
    ApprovalItem,
    CallItem,
    CompactionItem,
    CustomCallItem,
    Event,
    ListToolsItem,
    MessageItem,
    OutputItem,
    Outputs,
    ReasoningItem,
    SearchItem,
    ServerCallItem,
    ToolSearchItem,
)
from caesura.runtime.server.responses.resource import (
    MAX_OUTPUT_TOKENS,
    Resource,
    cache_diagnostics,
    usage_of,
)
from caesura.runtime.server.responses.schema import ENCRYPTED
from caesura.runtime.server.responses.store import Item


@dataclass(frozen=True, slots=True)
class Shown:
    """The tools of a run, by how the response shows their calls.

    `client` maps the names that the model knows to a function's name and namespace; the calls of
    those in `custom` have a free text instead of arguments. `server` are
    the tools of the server whose calls are shown, under `label`. `approved` are those of them
    whose calls wait for an approval. `hosted` are those whose calls are shown as those of
    OpenAI's own tools. With `pausing`, the run holds tools of the server.
    """

    client: Mapping[str, tuple[str, str | None]] = field(default_factory=dict)
    custom: frozenset[str] = frozenset()
    server: frozenset[str] = frozenset()
    approved: frozenset[str] = frozenset()
    hosted: frozenset[str] = frozenset()
    tool_search: frozenset[str] = frozenset()
    """The client's search of deferred tools, if there is one."""
    label: str = ""
    container_id: str | None = None
    """The container of a code interpreter that the request names."""
    pausing: bool = False
    compacts: bool = False
    """Whether the response is the summary of its conversation."""
    background: frozenset[str] = frozenset()
    """The client's tools for whose results the model does not wait."""


@dataclass(slots=True)
class OpenCall:
    """A call by the server that has no result yet."""

    name: str
    arguments: str
    turn: str
    item: ServerCallItem | SearchItem | CodeItem | ShellItem | None = None
    approval_id: str | None = None
    """The id of the approval request that waits for a decision about this call."""
    is_denied: bool = False
    """Whether the client itself denied the call."""


class Answer(RunFold[Event]):
    """The output of one run or, if the run waits for approvals in between, of a part of it.

    `calls` are the calls of the earlier parts that have no result yet. What the model thought can
    be encrypted for the `tenant`.
    """

    def __init__(
        self,
        resource: Resource,
        shown: Shown,
        calls: dict[str, OpenCall] | None = None,
        tenant: str = "",
    ) -> None:
        super().__init__()
        self.resource = resource
        self.diagnosis: Diagnosis | None = None
        """The prompt, compared with that of the response which the request names."""
        self.calls = {} if calls is None else calls
        self._shown = shown
        self._tenant = tenant
        wants_it = ENCRYPTED in resource.request.include
        self._seal = partial(sealed, tenant) if wants_it else None
        self._outputs = Outputs(resource.id)
        self._container = resource.id.partition("_")[2]
        self._sequence = 0
        self._message: MessageItem | None = None
        self._reasoning: ReasoningItem | None = None
        self._spaces: list[TextDelta] = []
        """White space that no text followed yet; calls are often written behind some."""
        self._called: dict[str, CallItem | ToolSearchItem] = {}
        self._turn = self._outputs.ids.turn()
        self._turn_has_ended = calls is not None
        self._last_call_is_inline = False
        self._late: set[str] = set()
        """The calls in the background, behind which the model has gone on."""

    # -- the stream's events ---------------------------------------------------------------------

    def begin(self, tools: Sequence[Item] | None = None, *, queued: bool = False) -> list[Event]:
        """Return the first events; `tools` is the server's list of tools, if it is to be shown."""
        if queued:
            self.resource.status = "queued"
        events = [self._state("response.created")]
        if queued:
            events.append(self._state("response.queued"))
            self.resource.status = "in_progress"
        events.append(self._state("response.in_progress"))
        if tools is not None:
            ListToolsItem(self._outputs, self._shown.label, list(tools))
        return self._numbered(events) + self._taken()

    def take(self, event: RunEvent) -> list[Event]:
        """Add one event of the run; return the events that a stream sends for it."""
        super().take(event)
        return self._taken()

    def ask(self, call_id: str, approval_id: str, arguments: str) -> list[Event]:
        """Show that a call waits for an approval; return the events for it."""
        call = self.calls[call_id]
        call.approval_id = approval_id
        self._close_message()
        ApprovalItem(self._outputs, approval_id, call.name, arguments, self._shown.label)
        return self._taken()

    def following(self, resource: Resource) -> "Answer":
        """Return the answer of the run's next part, which has the calls without a result."""
        for call in self.calls.values():
            call.item = None  # the next response shows it anew
        return Answer(resource, self._shown, self.calls, self._tenant)

    def end(self, now: float, reason: str | None = None) -> list[Event]:
        """Complete the response at the Unix time `now`; return the last events.

        `reason` says why it is incomplete, if another response goes on with it.
        """
        reason = MAX_OUTPUT_TOKENS if self.is_cut else reason
        is_cut = reason is not None
        self._close_reasoning("incomplete" if is_cut else "completed")
        if self._message is None and not len(self._outputs):
            self._message = MessageItem(self._outputs)
            self._write_spaces(self._message)
        self._close_message("incomplete" if is_cut else "completed")
        self._abandon()
        self.resource.complete(reason, now)
        return self._final(f"response.{self.resource.status}")

    def skip(self, now: float) -> list[Event]:
        """Complete the response without output, since nothing was to be generated."""
        self.resource.complete(None, now)
        return self._final("response.completed")

    def fail(self, error: ApiError) -> list[Event]:
        """End the response with an error; return the last events."""
        self._abandon()
        self.resource.fail(error)
        return self._final("response.failed")

    def cancel(self) -> list[Event]:
        """End the response because the client cancelled it; return the last events."""
        self._abandon()
        self.resource.status = "cancelled"
        return self._final("response.incomplete")

    @property
    def has_begun(self) -> bool:
        """Whether events were returned, so that the client may know the response."""
        return self._sequence > 0

    @property
    def waits(self) -> bool:
        """Whether the run can only go on when approvals that were asked for are given."""
        waiting = [call.approval_id is not None for call in self.calls.values()]
        return self._turn_has_ended and bool(waiting) and all(waiting)

    def snapshot(self) -> dict[str, Any]:
        """Return the response object with the output so far."""
        self.resource.output = self._outputs.records()
        return self.resource.public()

    def _final(self, kind: str) -> list[Event]:
        self.resource.usage = usage_of(self.total, self.cached_tokens)
        if self.diagnosis is not None and self.first_prompt_tokens:
            self.diagnosis.keep(self.resource.id, self.first_prompt_tokens)
            if self.diagnosis.names:
                self.resource.cache = cache_diagnostics(self.diagnosis, self.cached_tokens)
        self.resource.extension = self.extension()
        events = self._taken()
        self.resource.output = self._outputs.records()
        return events + self._numbered([self._state(kind)])

    def _state(self, kind: str) -> Event:
        return {"type": kind, "response": self.resource.public()}

    def _taken(self) -> list[Event]:
        return self._numbered(self._outputs.take())

    def _numbered(self, events: list[Event]) -> list[Event]:
        for event in events:
            event["sequence_number"] = self._sequence
            self._sequence += 1
        return events

    # -- text ------------------------------------------------------------------------------------

    def _on_text(self, event: TextDelta) -> None:
        self._turn_has_ended = False
        if self._message is None and not event.text.strip():
            self._spaces.append(event)
            return
        if self._message is None:
            self._close_reasoning()
            self._message = MessageItem(self._outputs)
            self._write_spaces(self._message)
        if event.text:
            self._message.write(event.text, event.logprobs)

    def _on_reasoning(self, text: str) -> None:
        self._turn_has_ended = False
        if self._reasoning is None:
            self._close_message()
            self._reasoning = ReasoningItem(self._outputs, self._seal)
        self._reasoning.write(text)

    def _close_reasoning(self, status: str = "completed") -> None:
        if self._reasoning is not None:
            self._reasoning.close(status)
            self._reasoning = None

    def _write_spaces(self, message: MessageItem) -> None:
        for event in self._spaces:
            if event.text:
                message.write(event.text, event.logprobs)
        self._spaces = []

    def _close_message(self, status: str = "completed") -> None:
        """Close the message or the reasoning that is open."""
        self._close_reasoning()
        self._spaces = []
        if self._message is not None:
            self._message.close(status)
            self._message = None

    def _abandon(self) -> None:
        self._message = self._reasoning = None
        for item in self._outputs.unclosed:
            item.abandon()

    # -- calls -----------------------------------------------------------------------------------

    def _is_shown(self, name: str) -> bool:
        return name in self._shown.server or name in self._shown.hosted

    def _is_clients(self, name: str) -> bool:
        return not self._shown.pausing or name in self._shown.client

    def _on_call(self, event: CallStarted) -> None:
        self._turn_has_ended = False
        if not self._shown.pausing:
            self._open_call(event.call_id, event.name)
        elif event.name in self._shown.server - self._shown.approved:
            self._open_server_call(event.call_id, event.name)

    def _open_call(self, call_id: str, name: str) -> CallItem | ToolSearchItem:
        self._close_message()
        if name in self._shown.tool_search:
            search = self._called[call_id] = ToolSearchItem(self._outputs, call_id)
            return search
        function, namespace = self._shown.client.get(name, (name, None))
        made = CustomCallItem if name in self._shown.custom else CallItem
        item = self._called[call_id] = made(self._outputs, call_id, function, namespace)
        if name in self._shown.background:
            item.goes_on()
        return item

    def _open_server_call(self, call_id: str, name: str) -> OpenCall:
        self._close_message()
        call = self._open(call_id, name)
        call.item = self._item_of(call_id, call)
        return call

    def _item_of(
        self, call_id: str, call: OpenCall
    ) -> ServerCallItem | SearchItem | CodeItem | ShellItem:
        include = self.resource.request.include
        match call.name if call.name in self._shown.hosted else "":
            case "web_search":
                return SearchItem(self._outputs, call.arguments, include)
            case "python":
                container = self._shown.container_id or f"{ids.CONTAINER}_{self._container}"
                return CodeItem(self._outputs, call.arguments, container, include)
            case "shell":
                return ShellItem(self._outputs, call.arguments, call_id)
        item_id = ids.server_call_id(call.turn, call_id)
        return ServerCallItem(self._outputs, item_id, call.name, self._shown.label)

    def _open(self, call_id: str, name: str) -> OpenCall:
        return self.calls.setdefault(call_id, OpenCall(name, "", self._turn))

    def _on_arguments(self, call_id: str, text: str) -> None:
        item: OutputItem | None = self._called.get(call_id)
        if item is None and call_id in self.calls:
            item = self.calls[call_id].item
        if isinstance(item, CallItem | ServerCallItem):
            item.write(text)

    def _on_finished(self, event: CallFinished) -> None:
        self._turn_has_ended = False
        self._last_call_is_inline = event.inline
        if self._is_clients(event.name):
            item = self._called.get(event.call_id) or self._open_call(event.call_id, event.name)
            item.close(event.arguments)
        else:
            self._end_arguments(event.call_id, event.name, event.arguments)

    def _on_malformed(self, event: CallMalformed) -> None:
        self._turn_has_ended = False
        self._last_call_is_inline = event.inline
        if self._shown.pausing:
            self._end_arguments(event.call_id, event.name or "", event.text)
        elif event.call_id in self._called:
            self._called[event.call_id].close(event.text, "incomplete")
        else:
            self._on_text(TextDelta(event.text))

    def _end_arguments(self, call_id: str, name: str, arguments: str) -> None:
        call = self._open(call_id, name)
        call.arguments = arguments
        waits = name in self._shown.approved
        if call.item is None and self._is_shown(name) and not waits:
            call = self._open_server_call(call_id, name)
        if isinstance(call.item, ServerCallItem):
            call.item.written(arguments)

    def _on_turn_end(self, event: TurnEnded) -> None:
        if event.reason == "call" and not self._last_call_is_inline:
            self._close_message()
        if event.reason == "call":
            self._close_reasoning()
        self._turn_has_ended = True
        self._turn = self._outputs.ids.turn()

    def _on_going_on(self, event: CallGoesOn) -> None:
        self._late.add(event.call.id)
        call = self.calls.get(event.call.id)
        if call is not None and call.item is not None:
            call.item.is_passed = True

    def _on_returned(self, event: ToolReturned) -> None:
        if event.call.id in self._late:
            self._close_message()  # what follows is another turn's
        call = self.calls.pop(event.call.id, None)
        if call is None or not self._is_shown(call.name):
            return
        content = event.result.content
        if isinstance(call.item, SearchItem):  # which does not show what the model read
            call.item.close(None if event.result.error else content)
            return
        if isinstance(call.item, CodeItem):  # whose outputs are shown to those who ask for them
            urls = [artifact.url for artifact in event.result.artifacts]
            call.item.close(content, urls, has_failed=event.result.error is not None)
            return
        if isinstance(call.item, ShellItem):
            ShellOutputItem(self._outputs, event.call.id, content)
            return
        self.hide(event.call.id)
        if call.is_denied:
            return
        if call.item is None:  # its call waited for an approval
            item_id = ids.server_call_id(call.turn, event.call.id)
            call.item = ServerCallItem(self._outputs, item_id, call.name, self._shown.label)
            call.item.written(call.arguments)
        if event.result.error is None:
            call.item.close(content, approval_request_id=call.approval_id)
        else:
            error = {"type": "mcp_tool_execution_error", "content": content}
            call.item.close(None, error, call.approval_id)


STEERED = "steered"
"""Why a response is incomplete whose run goes on as another one, behind new input."""


class CompactingAnswer(Answer):
    """The summary of a conversation, as one item `compaction`, which is whole when it ends."""

    def __init__(self, resource: Resource, shown: Shown) -> None:
        super().__init__(resource, shown)
        self._summary: list[str] = []
        self._item: CompactionItem | None = None

    def _on_text(self, event: TextDelta) -> None:
        if self._item is None:
            self._item = CompactionItem(self._outputs)
        self._summary.append(event.text)

    def _on_reasoning(self, text: str) -> None:
        """Show nothing: a compaction is one item."""

    def end(self, now: float, reason: str | None = None) -> list[Event]:
        """Complete the response with the summary, or fail it if the model wrote none."""
        summary = "".join(self._summary).strip()
        if self._item is None or not summary:
            message = "The model wrote no summary: ask again, or keep the conversation."
            return self.fail(ApiError(500, message, code="compaction_failed"))
        self._item.close(encoded_summary(summary))
        return super().end(now, reason)
