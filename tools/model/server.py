"""Another model's server as the ask_model tool calls it: questions, and the load of its engine."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from caesura.tools.errors import ToolError
from caesura.tools.model.load import MAX_METRICS_BYTES, load_in
from caesura.tools.net import HttpClient, HttpError

MAX_ANSWER_BYTES = 4 * 2**20
LOAD_SECONDS = 1.0
"""Limit for reading the load; a call is never delayed by it."""


class NoAnswer(ToolError):
    """The server answered without a text."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a server is asked with each question: its address up to `/v1`, headers and fields."""

    url: str
    headers: Mapping[str, str]
    fields: Mapping[str, Any]
    system: str


class ModelServer:
    """One session's connection to a server."""

    def __init__(self, asked: Asked, *, allow_private: bool, timeout_seconds: float) -> None:
        self._asked = asked
        self._client = HttpClient(
            allow_private=allow_private,
            timeout_seconds=timeout_seconds,
            max_bytes=MAX_ANSWER_BYTES,
        )
        self._metrics = HttpClient(
            allow_private=allow_private,
            timeout_seconds=LOAD_SECONDS,
            max_bytes=MAX_METRICS_BYTES,
        )

    async def answer(self, question: str) -> str:
        """Return the model's answer. Raises HttpError and NoAnswer."""
        asked = self._asked
        system = [{"role": "system", "content": asked.system}] if asked.system else []
        messages = [*system, {"role": "user", "content": question}]
        body = {**asked.fields, "messages": messages, "stream": False}
        url = f"{asked.url}/chat/completions"
        return _text_of(await self._client.post_json(url, body, headers=asked.headers))

    async def load(self) -> int | None:
        """Return how many requests its engine runs or queues; None if that cannot be read."""
        asked = self._asked
        root = asked.url.removesuffix("/v1")
        try:
            reply = await self._metrics.get_bytes(
                f"{root}/metrics", headers=asked.headers, accept=("text/plain",)
            )
        except HttpError:
            return None
        return load_in(reply.data.decode(errors="replace"), str(asked.fields["model"]))

    async def aclose(self) -> None:
        """Close the connections. May be called twice."""
        await self._client.aclose()
        await self._metrics.aclose()


def _text_of(answer: Any) -> str:
    match answer:
        case {"choices": [{"message": {"content": str(text)}, **choice}, *_]} if text.strip():
            cut = choice.get("finish_reason") == "length"
            return (
                f"{text.strip()} [cut: the answer has reached its limit]" if cut else text.strip()
            )
        case {"choices": [{"finish_reason": "length"}, *_]}:
            raise NoAnswer("the model reached its limit of tokens before it wrote an answer")
    raise NoAnswer("the model's server answered without a text")
