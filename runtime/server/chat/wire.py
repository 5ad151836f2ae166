"""Answers as OpenAI's objects `chat.completion` and `chat.completion.chunk`."""

from collections.abc import Sequence
from typing import Any

from caesura.runtime.server.chat.answer import LOGPROBS, Answer, Delta
from caesura.tools.people import Pending


def completion(answers: Sequence[Answer]) -> dict[str, Any]:
    """Return the whole answers to a request as its choices.

    The field `caesura` is present only if the server ran tools. A choice has it where there are
    several.
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
        "message": answer.message(),
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
