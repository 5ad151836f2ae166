"""Answers of chat completions: built from a run's events, and told as OpenAI's objects.

`Answer` gives deltas for a stream and a message for a plain response. `completion` and `Chunks` put
these into the objects `chat.completion` and `chat.completion.chunk`.
"""

import time
import uuid
from collections.abc import Collection, Sequence
from typing import Any

from caesura.intercept.calls.events import (
    CallFinished,
    CallMalformed,
    CallStarted,
    TextDelta,
    TokenLogprob,
)
from caesura.runtime.run.context import Plan
from caesura.runtime.run.fold import RunFold
from caesura.runtime.server.api.chat_request import ChatRequest
from caesura.runtime.server.api.custom import InputReader, arguments_of, input_of
from caesura.runtime.server.api.notes import with_notes
from caesura.scheduler.histories import REASONING
from caesura.tools.people import Pending

LOGPROBS = "logprobs"
"""Key in a delta of the log probabilities of its text, which a chunk has beside the delta."""
Delta = dict[str, Any]
Numbered = tuple[int, Delta]
"""A delta, and the number of the choice that it belongs to."""


class Answer(RunFold[Numbered]):
    """The part of a run that the client sees.

    The answer shows calls of the client's tools, never calls that the server runs. The reasoning
    of all turns is one text, under vLLM's name and under the one that many clients know.

    If the server runs no tools (`pausing` is False), all calls are the client's. Their arguments
    then stream as they come, also those of a malformed call, which the client answers as well.
    Otherwise the answer shows a call once it is complete: the model learns of a malformed call
    and tries again.
    """

    def __init__(
        self,
        model: str,
        client_tools: frozenset[str],
        *,
        pausing: bool,
        logprobs: bool = False,
        forced_name: str | None = None,
        index: int = 0,
        reasoning: bool = True,
        custom: Collection[str] = (),
        notes: Sequence[str] = (),
    ) -> None:
        """Create an empty answer; `forced_name` is the tool that `tool_choice` names.

        Calls of the tools in `custom` show one text instead of arguments.
        Without `reasoning`, the client does not see what the model thought. `index` is the answer's
        place among the choices of a request. `notes` say what of the request was left out.
        """
        super().__init__()
        self.id = f"chatcmpl-{uuid.uuid4().hex}"
        self.index = index
        self.created = int(time.time())
        self.model = model
        self._client_tools = client_tools
        self._custom = custom
        self._notes = notes
        self._pausing = pausing
        self._forced_name = forced_name
        self._logprobs: list[dict[str, Any]] | None = [] if logprobs else None
        self._text: list[str] = []
        self._reasoning: list[str] | None = [] if reasoning else None
        self._new_paragraph = self._new_thought = False
        self._shown: dict[str, _ShownCall] = {}

    def _on_text(self, event: TextDelta) -> list[Numbered]:
        return self._numbered(self._say(event.text, event.logprobs))

    def _on_reasoning(self, text: str) -> list[Numbered]:
        return self._numbered(self._think(text))

    def _on_call(self, event: CallStarted) -> list[Numbered]:
        return [] if self._pausing else self._numbered(self._show(event.call_id, event.name))

    def _on_arguments(self, call_id: str, text: str) -> list[Numbered]:
        shown = self._shown.get(call_id)
        return [] if shown is None else self._numbered(shown.extend(text))

    def _on_finished(self, event: CallFinished) -> list[Numbered]:
        return self._numbered(self._finish_call(event))

    def _on_malformed(self, event: CallMalformed) -> list[Numbered]:
        return self._numbered(self._malformed_call(event))

    def _numbered(self, deltas: list[Delta]) -> list[Numbered]:
        return [(self.index, delta) for delta in deltas]

    def _say(self, text: str, logprobs: Sequence[TokenLogprob] = ()) -> list[Delta]:
        if self._new_paragraph and text:
            # The model began a new message, which needs a break after the text before it.
            glued = self._text and not self._text[-1][-1:].isspace() and not text[:1].isspace()
            text = f"\n\n{text}" if glued else text
            self._new_paragraph = False
        self._text.append(text)
        if self._logprobs is None:
            return [{"content": text}]
        shown = [shown_logprob(token) for token in logprobs]
        self._logprobs.extend(shown)
        return [{"content": text, LOGPROBS: _logprobs(shown)}]

    def _think(self, text: str) -> list[Delta]:
        if self._reasoning is None:
            return []
        if self._new_thought and self._reasoning:
            text = f"\n\n{text}"
        self._new_thought = False
        self._reasoning.append(text)
        return [_reasoned(text)]

    def _show(self, call_id: str, name: str) -> list[Delta]:
        made = _CustomCall if name in self._custom else _ShownCall
        call = self._shown[call_id] = made(len(self._shown), name)
        return call.opening()

    def _finish_call(self, event: CallFinished) -> list[Delta]:
        if self._pausing and event.name not in self._client_tools:
            self._run_here(event)
            return []
        deltas = [] if event.call_id in self._shown else self._show(event.call_id, event.name)
        return deltas + self._shown[event.call_id].complete(event.arguments)

    def _malformed_call(self, event: CallMalformed) -> list[Delta]:
        if self._pausing:
            self._run_here(event)
            return []
        if event.call_id not in self._shown:
            return self._say(event.text)
        return self._shown[event.call_id].complete(event.text)

    def _run_here(self, event: CallFinished | CallMalformed) -> None:
        self._new_paragraph, self._new_thought = not event.inline, True

    @property
    def finish_reason(self) -> str:
        """OpenAI's `finish_reason` of the answer."""
        if self.is_cut:
            return "length"
        if not self._shown or self._forced_name in {call.name for call in self._shown.values()}:
            return "stop"  # OpenAI's also of a call that the client has chosen by its name
        return "tool_calls"

    def extension(self) -> dict[str, Any] | None:
        """Return what the server's tools did, and what was left out; None if nothing was."""
        return with_notes(super().extension(), self._notes)

    def logprobs(self) -> dict[str, Any] | None:
        """Return the tokens of the text with their log probabilities, if the client wants them."""
        return None if self._logprobs is None else _logprobs(self._logprobs)

    def usage(self, others: Sequence["Answer"] = ()) -> dict[str, Any]:
        """Return the token counts of the whole request.

        The client's prompt counts once, for this answer and the `others` together.
        `cached_tokens` counts those of its tokens that were in the KV cache. It leaves out the
        cached tokens of resumes, which would count the same tokens repeatedly; `extension` reports
        those per resume.
        """
        total = self.total
        prompt, completion = total.prompt_tokens, total.completion_tokens
        reasoning = total.reasoning_tokens
        for other in others:
            prompt += other.total.prompt_tokens - other.first_prompt_tokens
            completion += other.total.completion_tokens
            reasoning += other.total.reasoning_tokens
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": min(self.cached_tokens or 0, prompt)},
            "completion_tokens_details": {"reasoning_tokens": reasoning},
        }

    def message(self) -> dict[str, Any]:
        """Return the answer as a message of a later history, as the engine reads it."""
        return self._message([call.read() for call in self._shown.values()])

    def whole(self) -> dict[str, Any]:
        """Return the assistant's whole message, as the client gets it."""
        return self._message([call.whole() for call in self._shown.values()])

    def _message(self, calls: Sequence[dict[str, Any]]) -> dict[str, Any]:
        text = "".join(self._text)
        thought = _reasoned("".join(self._reasoning)) if self._reasoning else {}
        if not calls:
            return {"role": "assistant", "content": text, **thought}
        return {"role": "assistant", "content": text or None, **thought, "tool_calls": list(calls)}


class _ShownCall:
    """The sent part of a call of a client's tool."""

    def __init__(self, index: int, name: str) -> None:
        # An id of the engine is unique only in its session, which a conversation outlives.
        # Mistral's chat templates accept only ids of nine alphanumeric characters.
        self.id = uuid.uuid4().hex[:9]
        self._index = index
        self.name = name
        self._sent = ""

    def opening(self) -> list[Delta]:
        function = {"name": self.name, "arguments": ""}
        return [self._delta({"id": self.id, "type": "function", "function": function})]

    def extend(self, text: str) -> list[Delta]:
        self._sent += text
        return [self._delta({"function": {"arguments": text}})] if text else []

    def complete(self, arguments: str) -> list[Delta]:
        """Return the deltas for `arguments`, or none if they were streamed already."""
        return [] if self._sent else self.extend(arguments)

    def whole(self) -> dict[str, Any]:
        """Return the call as the client gets it."""
        return self.read()

    def read(self) -> dict[str, Any]:
        """Return the call as the engine reads it in a history."""
        return function_call(self.id, self.name, self._sent)

    def _delta(self, fields: dict[str, Any]) -> Delta:
        return {"tool_calls": [{"index": self._index, **fields}]}


class _CustomCall(_ShownCall):
    """The sent part of a call of a client's custom tool: of its input, and not of the arguments."""

    def __init__(self, index: int, name: str) -> None:
        super().__init__(index, name)
        self._reader = InputReader()

    def opening(self) -> list[Delta]:
        made = {"name": self.name, "input": ""}
        return [self._delta({"id": self.id, "type": "custom", "custom": made})]

    def extend(self, text: str) -> list[Delta]:
        return self._write(self._reader.push(text))

    def complete(self, arguments: str) -> list[Delta]:
        """Return the delta of what of the input was not streamed yet."""
        whole = input_of(arguments)
        return self._write(whole[len(self._sent) :]) if whole.startswith(self._sent) else []

    def _write(self, text: str) -> list[Delta]:
        self._sent += text
        return [self._delta({"custom": {"input": text}})] if text else []

    def whole(self) -> dict[str, Any]:
        made = {"name": self.name, "input": self._sent}
        return {"id": self.id, "type": "custom", "custom": made}

    def read(self) -> dict[str, Any]:
        return function_call(self.id, self.name, arguments_of(self._sent))


def function_call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    """Return a call of a function, as messages hold it."""
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


def answer_of(plan: Plan, asked: ChatRequest, index: int = 0) -> Answer:
    """Return the empty answer at a place among the choices of a request with this plan."""
    return Answer(
        asked.model,
        plan.client_tools,
        pausing=plan.spec.pausing,
        logprobs=plan.sampling.logprobs is not None,
        forced_name=plan.forced_name,
        index=index,
        reasoning=asked.include_reasoning is not False,
        custom=asked.custom_tools,
        notes=[*asked.left_out(), *plan.notes],
    )


def completion(answers: Sequence[Answer]) -> dict[str, Any]:
    """Return the whole answers to a request as its choices.

    The field `caesura` is present only if the server ran tools or left something out. A choice has
    it where there are several.
    """
    first, *others = answers
    choices = [_choice(answer) for answer in answers]
    body = _head(first, "chat.completion") | {"choices": choices, "usage": first.usage(others)}
    for answer, choice in zip(answers, choices, strict=True):
        if (extension := answer.extension()) is not None:
            (choice if others else body)["caesura"] = extension
    return body


def _choice(answer: Answer) -> dict[str, Any]:
    return {
        "index": answer.index,
        "message": answer.whole(),
        "logprobs": answer.logprobs(),
        "finish_reason": answer.finish_reason,
    }


class Chunks:
    """The chunks of one stream, with the answers to one request."""

    def __init__(self, answers: Sequence[Answer], *, include_usage: bool) -> None:
        self._answers = answers
        self._include_usage = include_usage

    def opening(self) -> list[dict[str, Any]]:
        """Return the first chunks, which hold the roles."""
        begin = {"role": "assistant", "content": ""}
        return [self.delta(begin, answer.index) for answer in self._answers]

    def delta(
        self, delta: Delta, index: int = 0, finish_reason: str | None = None
    ) -> dict[str, Any]:
        """Return a chunk that holds one delta of the answer at `index`."""
        logprobs = delta.get(LOGPROBS)
        delta = {key: value for key, value in delta.items() if key != LOGPROBS}
        choice = {"index": index, "delta": delta, "logprobs": logprobs}
        choice["finish_reason"] = finish_reason
        body = _head(self._answers[0], "chat.completion.chunk") | {"choices": [choice]}
        return body | {"usage": None} if self._include_usage else body

    def pending(self, item: Pending) -> dict[str, Any]:
        """Return a chunk with an empty delta and an item that waits for a person."""
        return self.delta({}) | {"caesura": {"pending": item.public()}}

    def closing(self) -> list[dict[str, Any]]:
        """Return the chunks after the last delta: finish reasons, and the usage if requested.

        Each chunk with a finish reason holds the field `caesura`, as a whole answer does.
        """
        chunks = []
        for answer in self._answers:
            last = self.delta({}, answer.index, answer.finish_reason)
            if (extension := answer.extension()) is not None:
                last["caesura"] = extension
            chunks.append(last)
        if self._include_usage:
            first, *others = self._answers
            usage = {"choices": [], "usage": first.usage(others)}
            chunks.append(_head(first, "chat.completion.chunk") | usage)
        return chunks


def _head(answer: Answer, kind: str) -> dict[str, Any]:
    return {"id": answer.id, "object": kind, "created": answer.created, "model": answer.model}


def _reasoned(text: str) -> dict[str, str]:
    """Return reasoning under both of its names."""
    return dict.fromkeys(REASONING, text)


def _logprobs(content: list[dict[str, Any]]) -> dict[str, Any]:
    return {"content": content, "refusal": None}


def shown_logprob(token: TokenLogprob) -> dict[str, Any]:
    """Return a token as clients get it, with the most likely ones in its place."""
    top = [_bare_logprob(one) for one in token.top]
    return _bare_logprob(token) | {"top_logprobs": top}


def _bare_logprob(token: TokenLogprob) -> dict[str, Any]:
    return {"token": token.token, "logprob": token.logprob, "bytes": list(token.data)}
