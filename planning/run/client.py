"""What a request of an application asks of its model, sent by the API that all engines have."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from caesura.planning.application.requests import Request, Requests
from caesura.planning.run.asking import TOOL
from caesura.planning.run.host import Asking, Endpoint

MAX_REQUEST_SECONDS = 3600.0
"""How long an engine may take for one request before it counts as lost."""
MAX_REASON_CHARACTERS = 300
BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses after which the same request may succeed."""

Messages = Sequence[Mapping[str, Any]]


class EngineLost(Exception):
    """The engine did not answer: its process ended, or the connection did."""


class EngineBusy(Exception):
    """The engine could not take the request now."""


class Refused(Exception):
    """The engine refused the request, and would refuse it again. The message is its own."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of a model: messages, how to decode, and tools of the server's to call."""

    messages: Messages
    max_tokens: int
    temperature: float = 0.0
    seed: int = 0
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Completion:
    """An engine's answer."""

    text: str
    finish: str
    prompt_tokens: int
    output_tokens: int


class Client(Asking):
    """Asks engines over HTTP. An asynchronous context manager, which closes its connections."""

    def __init__(self) -> None:
        super().__init__(MAX_REQUEST_SECONDS)

    async def ask(self, endpoint: Endpoint, question: Question) -> Completion:
        """Return the model's answer. Raises `EngineLost`, `EngineBusy` and `Refused`."""
        body: dict[str, Any] = {
            "model": endpoint.model,
            "messages": list(question.messages),
            "max_tokens": question.max_tokens,
            "temperature": question.temperature,
        }
        if question.temperature > 0:
            body["seed"] = question.seed
        if question.tools:
            body["server_tools"] = list(question.tools)
        try:
            url, headers = endpoint.chat_url, endpoint.headers
            async with self.http.post(url, json=body, headers=headers) as answer:
                held = await answer.read()
                status = answer.status
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise EngineLost(f"{type(error).__name__}: {error}") from error
        if status != 200:
            reason = held.decode("utf-8", "replace")[:MAX_REASON_CHARACTERS]
            raise (EngineBusy if status in BUSY else Refused)(f"status {status}: {reason}")
        return completion_of(held)


def completion_of(held: bytes) -> Completion:
    """Return the completion in an answer's body; raises `Refused` if it holds none."""
    try:
        answer = json.loads(held)
        choice, usage = answer["choices"][0], answer.get("usage") or {}
        text = choice["message"]["content"]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise Refused(f"the answer holds no completion: {held[:80]!r}") from error
    return Completion(
        text=text if isinstance(text, str) else "",
        finish=str(choice.get("finish_reason") or ""),
        prompt_tokens=int(usage.get("prompt_tokens") or 0),
        output_tokens=int(usage.get("completion_tokens") or 0),
    )


class ApplicationQuestions:
    """Makes the question of a request from the outputs that it needs.

    Where a task samples, each request has a seed of its own, the same in every run. A call raises
    `PromptError` if the request's template can't be filled in with the outputs.
    """

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._tasks = {task.name: task for task in requests.application.tasks}

    def __call__(self, request: Request, outputs: Mapping[str, str]) -> Question:
        """Return the question."""
        task = self._tasks[request.task]
        return Question(
            messages=self._requests.messages(request, outputs),
            max_tokens=request.max_tokens,
            temperature=task.temperature,
            seed=self._seed(request),
            tools=(*task.tools, TOOL) if task.asks else task.tools,
        )

    def _seed(self, request: Request) -> int:
        named = f"{self._requests.application.seed}/{request.key}"
        return int.from_bytes(hashlib.sha256(named.encode()).digest()[:4])
