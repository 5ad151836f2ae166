"""Small applications for tests of runs."""

from collections.abc import Mapping

from caesura.planning.application.application import Application, Model, Task
from caesura.planning.application.requests import Request
from caesura.planning.run.client import Question


def application(*models: str, rows: int = 3) -> Application:
    """Return an application with a task of each model's name, and `rows` rows in each."""
    return Application(
        "small",
        tuple(Model(name, f"/models/{name}") for name in models),
        tuple(
            Task(name, name, "{{ text }}", rows=tuple({"text": str(n)} for n in range(rows)))
            for name in models
        ),
    )


def request(key: str, *needs: str, model: str = "") -> Request:
    task = key.partition("/")[0]
    return Request(key, task, model or task, 10, 20, needs)


def requests(*models: str, rows: int = 3) -> tuple[Request, ...]:
    return tuple(request(f"{model}/{n}") for model in models for n in range(rows))


def question(asked: Request, outputs: Mapping[str, str]) -> Question:
    """Ask for the request's key and the outputs that it needs."""
    text = " ".join([asked.key, *outputs.values()])
    return Question([{"role": "user", "content": text}], asked.max_tokens)
