"""What an application's requests ask of their models."""

import hashlib
from collections.abc import Mapping

from caesura.planning.application.expand import Requests
from caesura.planning.application.requests import Request
from caesura.planning.run.asking.configs import TOOL
from caesura.planning.run.sending.client import Question


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
