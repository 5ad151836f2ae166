"""Answers as OpenAI's objects `chat.completion` and `chat.completion.chunk`."""

from typing import Any

from caesura.runtime.server.chat.answer import LOGPROBS, Answer, Delta
from caesura.tools.people import Pending


def completion(answer: Answer) -> dict[str, Any]:
    """Return a whole answer; its field `caesura` is present only if the server ran tools."""
    choice = {
        "index": 0,
        "message": answer.message(),
        "logprobs": answer.logprobs(),
        "finish_reason": answer.finish_reason,
    }
    body = _head(answer, "chat.completion") | {"choices": [choice], "usage": answer.usage()}
    if (extension := answer.extension()) is not None:
        body["caesura"] = extension
    return body


class Chunks:
    """The chunks of one streamed answer."""

    def __init__(self, answer: Answer, *, include_usage: bool) -> None:
        self._answer = answer
        self._include_usage = include_usage

    def opening(self) -> dict[str, Any]:
        """Return the first chunk, which holds the role."""
        return self.delta({"role": "assistant", "content": ""})

    def delta(self, delta: Delta, finish_reason: str | None = None) -> dict[str, Any]:
        """Return a chunk that holds one delta."""
        logprobs = delta.get(LOGPROBS)
        delta = {key: value for key, value in delta.items() if key != LOGPROBS}
        choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
        body = _head(self._answer, "chat.completion.chunk") | {"choices": [choice]}
        return body | {"usage": None} if self._include_usage else body

    def pending(self, item: Pending) -> dict[str, Any]:
        """Return a chunk with an empty delta and an item that waits for a person."""
        return self.delta({}) | {"caesura": {"pending": item.public()}}

    def closing(self) -> list[dict[str, Any]]:
        """Return the chunks after the last delta: the finish reason, and the usage if requested.

        The first of them holds the field `caesura`, as a whole answer does.
        """
        last = self.delta({}, self._answer.finish_reason)
        if (extension := self._answer.extension()) is not None:
            last["caesura"] = extension
        if not self._include_usage:
            return [last]
        usage = {"choices": [], "usage": self._answer.usage()}
        return [last, _head(self._answer, "chat.completion.chunk") | usage]


def _head(answer: Answer, kind: str) -> dict[str, Any]:
    return {"id": answer.id, "object": kind, "created": answer.created, "model": answer.model}
