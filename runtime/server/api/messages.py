"""`POST /v1/messages`: each request has one engine session and one run.

The answer is built from the run's events: events of a stream, or Anthropic's object `message`.
"""

import hashlib
import json
import time
import uuid
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Literal

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Send

from caesura.intercept.calls.events import (
    CallFinished,
    CallMalformed,
    TextDelta,
    TurnEnded,
)
from caesura.runtime.events import ToolReturned
from caesura.runtime.run.context import Plan
from caesura.runtime.run.fold import RunFold
from caesura.runtime.run.served_agent import Agents, instructed
from caesura.runtime.server.api.chat_request import ChatRequest, make_plan
from caesura.runtime.server.api.compaction import Summary, continued, heads_of, summarised
from caesura.runtime.server.api.context_management import Compact, Managed, Manager
from caesura.runtime.server.api.decoding import open_session, stream_pieces, with_sender
from caesura.runtime.server.api.deferred import SEARCHES
from caesura.runtime.server.api.hosted import WEB_FETCH, WEB_SEARCH, run_here
from caesura.runtime.server.api.messages_request import (
    Block,
    MessagesRequest,
    answer_record,
    parse,
    parse_count,
)
from caesura.runtime.server.api.messages_tools import result_block, with_declared
from caesura.runtime.server.api.notes import say_once, with_notes
from caesura.runtime.server.api.people import pending_told
from caesura.runtime.server.http.connection import parsed, parsed_once
from caesura.runtime.server.http.errors import JsonAnswer
from caesura.runtime.server.http.exchange import note_answer
from caesura.runtime.server.http.stream import EventStream, errors_sent, typed_event
from caesura.runtime.server.keys.sender import Sender, sender_of
from caesura.runtime.server.load.diagnosis import Diagnosis, prompt_of
from caesura.runtime.server.load.state import State
from caesura.scheduler.messages import Message
from caesura.tools.people import Pending

Event = dict[str, Any]
PING: Event = {"type": "ping"}
DIRECT = {"caller": {"type": "direct"}}
"""Who makes a call: the model itself, not code of its own."""
NO_USAGE = dict.fromkeys(("cache_creation", "inference_geo", "server_tool_use", "service_tier"))
"""Required fields of Anthropic's usage that say nothing here."""


def diagnosed(diagnosis: Diagnosis, cached_tokens: int | None) -> dict[str, Any]:
    """Return the field `diagnostics`; it is null where nothing keeps the cache from a hit.

    `cached_tokens` is how many tokens of the prompt were in the cache; None until it is known.
    """
    found = diagnosis.miss
    if diagnosis.names and diagnosis.before is None:
        reason: dict[str, Any] = {"type": "previous_message_not_found"}
    elif found is None:
        return {"diagnostics": None}
    elif found.change in ("effort", "other"):
        reason = {"type": "unavailable"}
    else:
        missed = found.missed(cached_tokens)
        reason = {"type": f"{found.change}_changed", "cache_missed_input_tokens": missed}
    return {"diagnostics": {"cache_miss_reason": reason}}


class Answer(RunFold[Event]):
    """The part of a run that the client sees: thinking, text, and calls of the client's tools.

    A call is shown once it is complete. If the server runs tools (`pausing`), the model learns of
    a malformed call and tries again. Otherwise a malformed call is text. The client sees thinking
    only if the answer `thinks`. `hosted` are the server's tools whose calls and results are shown,
    as Anthropic's own. `notes` say what of the request was left out.
    """

    def __init__(
        self,
        model: str,
        client_tools: frozenset[str],
        *,
        pausing: bool,
        thinks: bool = True,
        hosted: Collection[str] = (),
        notes: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.id = f"msg_{uuid.uuid4().hex}"
        self._model = model
        self._client_tools = client_tools
        self._pausing = pausing
        self._thinks = thinks
        self._hosted = frozenset(hosted)
        self._notes = notes
        self._uses: dict[str, tuple[str, str]] = {}
        """The block's id and the tool's name of each hosted call without a result, by call."""
        self._requests = dict.fromkeys(sorted(self._hosted), 0)
        self._content: list[dict[str, Any]] = []
        self._text: list[str] | None = None
        """The pieces of the block of text or thinking that is open."""
        self._open: Literal["text", "thinking"] = "text"
        self._new_paragraph = False
        self._stop_text: str | None = None
        self.diagnosis: Diagnosis | None = None
        """Why the prompt was not in the cache, if the client has asked for it."""
        self.applied_edits: Sequence[Mapping[str, Any]] | None = None
        """What was cleared before the model read the history, if the client manages it."""
        self._summary: Summary | None = None
        self._pauses = False

    def _on_text(self, event: TextDelta) -> list[Event]:
        return self._say(event.text)

    def _on_reasoning(self, text: str) -> list[Event]:
        return self._think(text)

    def _on_finished(self, event: CallFinished) -> list[Event]:
        if not self._pausing or event.name in self._client_tools:
            # Mistral's chat templates accept only ids of nine alphanumeric characters.
            return self._show(event, "tool_use", uuid.uuid4().hex[:9])
        if event.name in self._hosted:
            block_id = f"srvtoolu_{uuid.uuid4().hex}"
            self._uses[event.call_id] = block_id, event.name
            return self._show(event, "server_tool_use", block_id)
        self._new_paragraph = not event.inline
        return []

    def _on_malformed(self, event: CallMalformed) -> list[Event]:
        if not self._pausing:
            return self._say(event.text)
        self._new_paragraph = not event.inline
        return []

    def _on_turn_end(self, event: TurnEnded) -> None:
        self._stop_text = event.stop_text

    def _on_returned(self, event: ToolReturned) -> list[Event]:
        use = self._uses.pop(event.call.id, None)
        if use is None:
            return []
        self._requests[use[1]] += event.result.error is None
        return self._show_result(result_block(*use, event))

    def _show_result(self, block: dict[str, Any]) -> list[Event]:
        events = self._end_block()
        self._new_paragraph = False
        return [*events, self._start(block | DIRECT), self._stop()]

    def _settle(self) -> list[Event]:
        """Give a result to each call whose run ended before it, as clients expect one of each."""
        uses = list(self._uses.values())
        self._uses.clear()
        return [event for use in uses for event in self._show_result(result_block(*use, None))]

    def compact(self, summary: Summary, *, pauses: bool) -> list[Event]:
        """Begin with a compaction; it is the whole answer if the run `pauses` behind it."""
        self._summary, self._pauses = summary, pauses
        begun = self._start({"type": "compaction", "content": None})
        self._content[-1] = {"type": "compaction", "content": summary.text}
        written = self._delta({"type": "compaction_delta", "content": summary.text})
        return [begun, written, self._stop()]

    def _say(self, text: str) -> list[Event]:
        if not text:
            return []
        events = self._end_block() if self._open == "thinking" else []
        if self._text is None:
            self._text, self._open = [], "text"
            events.append(self._start(_text("")))
        elif self._new_paragraph and not self._text[-1][-1:].isspace() and not text[:1].isspace():
            text = f"\n\n{text}"  # the model began a new message after a call of the server's
        self._new_paragraph = False
        self._text.append(text)
        return [*events, self._delta({"type": "text_delta", "text": text})]

    def _think(self, text: str) -> list[Event]:
        if not self._thinks:
            return []
        # Thinking after a call of the server's is a block of its own.
        goes_on = self._open == "thinking" and not self._new_paragraph
        events = [] if goes_on else self._end_block()
        if self._text is None:
            self._text, self._open = [], "thinking"
            events.append(self._start(_thinking("", "")))
        self._new_paragraph = False
        self._text.append(text)
        return [*events, self._delta({"type": "thinking_delta", "thinking": text})]

    def _show(self, call: CallFinished, kind: str, block_id: str) -> list[Event]:
        events = self._end_block()
        block = {"type": kind, "id": block_id, "name": call.name} | DIRECT
        events.append(self._start(block | {"input": {}}))
        self._content[-1] = block | {"input": json.loads(call.arguments)}
        events.append(self._delta({"type": "input_json_delta", "partial_json": call.arguments}))
        return [*events, self._stop()]

    def _end_block(self) -> list[Event]:
        """Close the block of text or thinking that is open, if there is one."""
        if self._text is None:
            return []
        self._content = self._blocks()
        self._text = None
        if self._open == "text":
            return [self._stop()]
        signature = self._content[-1]["signature"]
        return [self._delta({"type": "signature_delta", "signature": signature}), self._stop()]

    def _blocks(self) -> list[dict[str, Any]]:
        """Return the blocks so far."""
        if self._text is None:
            return self._content
        text = "".join(self._text)
        if self._open == "thinking":
            return [*self._content[:-1], _thinking(text, _signature(text))]
        return [*self._content[:-1], _text(text)]

    def _start(self, block: dict[str, Any]) -> Event:
        self._content.append(block)
        return {"type": "content_block_start", "index": self._index, "content_block": block}

    def _delta(self, delta: dict[str, Any]) -> Event:
        return {"type": "content_block_delta", "index": self._index, "delta": delta}

    def _stop(self) -> Event:
        return {"type": "content_block_stop", "index": self._index}

    @property
    def _index(self) -> int:
        return len(self._content) - 1

    def message(self) -> Message:
        """Return the answer as a chat message, as a later history with its blocks has it."""
        return answer_record([Block.model_validate(block) for block in self._blocks()])

    def whole(self) -> dict[str, Any]:
        """Return the object `message`; its field `caesura` tells what the server's tools did.

        It is as in chat completions: present only if the server ran tools or left something out.
        """
        self._settle()
        told = {"usage": NO_USAGE | self._used()} | self._diagnosed(self.cached_tokens)
        return self._head(self._blocks()) | self._end() | told | self._managed() | self._own()

    def opening(self) -> Event:
        """Return the first event of a stream; no token is counted yet."""
        unknown = {"stop_reason": None, "stop_sequence": None}
        tokens = {"input_tokens": 0, "output_tokens": 0}
        cached = dict.fromkeys(("cache_creation_input_tokens", "cache_read_input_tokens"), 0)
        usage = tokens | cached | NO_USAGE | {"output_tokens_details": None}
        message = self._diagnosed(None) | self._head([]) | unknown | {"usage": usage}
        return {"type": "message_start", "message": message}

    def pending(self, item: Pending) -> Event:
        """Return a ping with an item that waits for a person."""
        return PING | {"caesura": {"pending": item.public()}}

    def closing(self) -> list[Event]:
        """Return the events after the last piece: the end of its block, and of the message."""
        last = [*self._end_block(), *self._settle()]
        end = {"type": "message_delta", "delta": self._end(), "usage": self._used()}
        return [*last, end | self._managed() | self._own(), {"type": "message_stop"}]

    def _managed(self) -> dict[str, Any]:
        edits = self.applied_edits
        return {} if edits is None else {"context_management": {"applied_edits": list(edits)}}

    def _diagnosed(self, cached_tokens: int | None) -> dict[str, Any]:
        return {} if self.diagnosis is None else diagnosed(self.diagnosis, cached_tokens)

    def _head(self, content: list[dict[str, Any]]) -> dict[str, Any]:
        head = {"id": self.id, "type": "message", "role": "assistant", "model": self._model}
        return head | {"content": content, "container": None, "stop_details": None}

    def _end(self) -> dict[str, Any]:
        """Return why the answer ended."""
        if self._pauses:
            return {"stop_reason": "compaction", "stop_sequence": None}
        if self.is_cut:
            return {"stop_reason": "max_tokens", "stop_sequence": None}
        if any(block["type"] == "tool_use" for block in self._content):
            return {"stop_reason": "tool_use", "stop_sequence": None}
        reason = "end_turn" if self._stop_text is None else "stop_sequence"
        return {"stop_reason": reason, "stop_sequence": self._stop_text}

    def _used(self) -> dict[str, Any]:
        """Return the token counts of the whole request; those of a summary stand beside them."""
        details = {"thinking_tokens": self.total.reasoning_tokens}
        told = _tokens(self) | {"output_tokens_details": details} | self._server_uses()
        if self._summary is None:
            return told
        iterations = [{"type": "compaction"} | _tokens(self._summary)]
        if not self._pauses:
            iterations.append({"type": "message"} | _tokens(self))
        return told | {"iterations": iterations}

    def _server_uses(self) -> dict[str, Any]:
        """Return how often tools of Anthropic's ran here, if the request declares one."""
        made = {f"{name}_requests": self._requests.get(name, 0) for name in (WEB_SEARCH, WEB_FETCH)}
        return {"server_tool_use": made} if self._hosted & {WEB_SEARCH, WEB_FETCH} else {}

    def _own(self) -> dict[str, Any]:
        told = with_notes(self.extension(), self._notes)
        return {} if told is None else {"caesura": told}


def _tokens(run: RunFold[Any]) -> dict[str, Any]:
    """Return the token counts of a run.

    Tokens that were in the KV cache when it began count as read from a cache. Those that later
    turns found there are left out.
    """
    total = run.total
    cached = min(run.cached_tokens or 0, total.prompt_tokens)
    return {
        "input_tokens": total.prompt_tokens - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": total.completion_tokens,
    }


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text, "citations": None}


def _thinking(text: str, signature: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": text, "signature": signature}


def _signature(text: str) -> str:
    """Return the signature of a block of thinking, which clients require; nothing checks it."""
    return hashlib.sha256(text.encode()).hexdigest()


class Messages:
    """The handler of the route."""

    def __init__(self, state: State) -> None:
        self._state = state

    @property
    def _own(self) -> frozenset[str]:
        """The tools of Anthropic's that run here."""
        return run_here(self._state.tools) | SEARCHES

    async def answer(self, request: Request, send: Send) -> None:
        """Answer a request, streamed or whole.

        vLLM's own server, where there is one, answers requests that ask for what only it does.
        In every case the handler closes the engine's session and cancels the tools under way,
        also when the client leaves.
        """
        started = time.monotonic()
        state = self._state
        shown = sender_of(request)
        with state.gate.enter(shown):
            own = self._own
            asked, plan = await self._planned(request, own)
            sender = shown.of_user(plan.user, told=plan.spec.origin)
            plan = with_sender(state, plan, sender)
            thinks = asked.thinking is None or asked.thinking.type != "disabled"
            tools = plan.client_tools
            answer = Answer(
                asked.model,
                tools,
                pausing=plan.spec.pausing,
                thinks=thinks,
                hosted=asked.hosted(own),
                notes=asked.left_out(own),
            )
            managed = await self._managed(asked, plan)
            if asked.context_management is not None:
                answer.applied_edits = managed.applied
            if asked.diagnostics is not None:
                answer.diagnosis = await state.diagnoses.compare(
                    state.engine,
                    sender.tenant,
                    managed.plan,
                    asked.diagnostics.previous_message_id,
                )
            note_answer(request.scope, answer.id)
            async with aclosing(self._pieces(asked, managed, answer, started, sender)) as events:
                if asked.stream:
                    await _stream(state, request, send, plan, answer, events)
                else:
                    async for _ in events:
                        pass
            if answer.diagnosis is not None:
                answer.diagnosis.keep(answer.id, answer.first_prompt_tokens)
            if not asked.stream:
                await JsonAnswer(answer.whole())(request.scope, request.receive, send)

    async def count(self, request: Request) -> Response:
        """Count the tokens of the prompt that a request would have.

        Messages stand where the chat template gets them, where vLLM's server moves or refuses some.
        """
        state, body = self._state, await request.body()
        asked, chat = await parsed(parse_count, body)
        agents = await instructed(state.agents, chat.model)

        def planned(body: bytes) -> Plan:
            return self._plan_of(asked, chat, self._own, agents)

        plan = await parsed(planned, body)
        plan = replace(plan, messages=await self._inlined(plan))
        managed = await self._managed(asked, plan)
        tokens = await state.engine.count_prompt(managed.plan.spec, managed.plan.messages)
        told: dict[str, Any] = {"input_tokens": tokens}
        if asked.context_management is not None:
            original = tokens if managed.original_tokens is None else managed.original_tokens
            told["context_management"] = {"original_input_tokens": original}
        return JsonAnswer(told)

    async def _inlined(self, plan: Plan) -> tuple[Message, ...]:
        rules = self._state.engine.media_rules
        return tuple(await self._state.media.inlined(plan.messages, rules))

    async def _managed(self, asked: MessagesRequest, plan: Plan) -> Managed:
        """Return the plan after the edits that a request asks for."""
        if asked.context_management is None:
            return Managed(plan)
        if asked.context_management.edits:
            plan = replace(plan, messages=await self._inlined(plan))
        return await Manager(self._state.engine, plan).edited(asked.context_management)

    async def _pieces(
        self,
        asked: MessagesRequest,
        managed: Managed,
        answer: Answer,
        started: float,
        sender: Sender,
    ) -> AsyncGenerator[Event, None]:
        """Run a plan to its end; yield the answer's events, with a compaction first if one is due.

        What was before the compaction is gone for the answer, as it is for later requests.
        """
        state, plan, due = self._state, managed.plan, managed.compaction
        alone = asked.compaction is not None
        if asked.compaction is not None:
            due = Compact(type="compact_20260112", instructions=asked.compaction.instructions)
        if due is not None:
            question = (due.instructions or "").strip()
            summary = await summarised(state, plan, question, answer.id, sender)
            pauses = alone or (due.pause_after_compaction and summary.text is not None)
            for event in answer.compact(summary, pauses=pauses):
                yield event
            if pauses:
                return
            if summary.text is not None:
                plan = continued(plan, summary.text, heads_of(plan.messages, asked.head))
            if answer.diagnosis is not None:
                prompt = await prompt_of(state.engine, plan)
                answer.diagnosis = replace(answer.diagnosis, prompt=prompt)
        async with open_session(state, plan, answer) as session:
            decoding = stream_pieces(state, plan, session, answer, started, sender)
            async with aclosing(decoding) as events:
                async for event in events:
                    yield event

    def _plan_of(
        self, asked: MessagesRequest, chat: ChatRequest, own: Collection[str], agents: Agents
    ) -> Plan:
        """Return the plan of a request; `own` are the tools of Anthropic's that run here."""
        state, hosted = self._state, asked.hosted(own)
        names = list(dict.fromkeys([*chat.server_tools, *hosted]))
        chat = chat.model_copy(update={"server_tools": names})
        deferred = [spec for name, spec in asked.specs.items() if name in asked.deferred]
        tools = with_declared(state.tools, hosted, deferred)
        plan = make_plan(chat, state.engine, tools, state.limits, agents)
        spec = replace(plan.spec, deferred=deferred)
        return replace(plan, spec=spec, client_tools=plan.client_tools | asked.deferred)

    async def _planned(
        self, request: Request, own: Collection[str]
    ) -> tuple[MessagesRequest, Plan]:
        """Parse and check a body; raise `ApiError` if it is invalid."""
        asked, chat = await parsed_once(request, parse)
        say_once(asked.left_out(own))
        agents = await instructed(self._state.agents, chat.model)

        def planned(body: bytes) -> Plan:
            return self._plan_of(asked, chat, own, agents)

        return asked, await parsed(planned, await request.body())


async def _stream(
    state: State,
    request: Request,
    send: Send,
    plan: Plan,
    answer: Answer,
    events: AsyncGenerator[Event, None],
) -> None:
    ping = typed_event(PING)
    async with EventStream(send, state.options.keep_alive_seconds, keep_alive=ping) as stream:
        begun = False

        async def tell(event: Event) -> None:
            nonlocal begun
            if not begun:
                begun = True
                await stream.send_typed(answer.opening())
            await stream.send_typed(event)

        async def tell_pending(item: Pending) -> None:
            await tell(answer.pending(item))

        async with errors_sent(request, stream, stream.send_typed):
            async with pending_told(state.people, answer.id, plan.registry, tell_pending):
                async for event in events:
                    await tell(event)
            for event in answer.closing():
                await tell(event)
        await stream.end()
