"""The ask_model tool: its settings, and what a call does.

While the other model works, the request that asks it is paused. So a call also forecasts how long
its answer will take, by the load of the other engine and the times of earlier answers.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from caesura.tools.context import CallContext, current
from caesura.tools.model.answer_times import AnswerTimes
from caesura.tools.model.forecast_file import ForecastFile
from caesura.tools.model.server import Asked, ModelServer
from caesura.tools.net.endpoint import key_headers, service_url
from caesura.tools.schema.settings_errors import settings_sentence
from caesura.tools.services import Services, SetupError, ToolSettings
from caesura.tools.tool import Tool

NAME = "ask_model"
ABOUT = "Ask another language model; returns its answer."
TIMEOUT_SECONDS = 300.0
QUESTION = "{question}"
"""Stands for the question in the setting `prompt`."""
MAX_QUESTION_CHARACTERS = 20_000


class Settings(ToolSettings):
    """Settings of `[tools.ask_model]`."""

    url: str | None = Field(None, description="the model's server, up to /v1")
    model: str | None = Field(None, description="the model's name there")
    api_key_env: str | None = Field(None, description="the variable with the server's key")
    about: str | None = Field(None, description="what the model is good for, for the asking model")
    system: str = Field("", description="a system message before each question")
    prompt: str = Field(
        "{question}", description="what is sent, with {question} where the question belongs"
    )
    server_tools: tuple[str, ...] = Field(
        (), description="tools of a Caesura server that the asked model may call"
    )
    max_tokens: int = Field(512, ge=1, description="limit for an answer")
    temperature: float | None = Field(
        None, ge=0, le=2, description="of the answers; default: the server's"
    )
    expected_seconds: float | None = Field(
        None, gt=0, description="expected time of an answer, before any was measured"
    )
    forecast_file: Path | None = Field(
        None, description="JSON with the expected seconds of models' answers"
    )
    read_load: bool = Field(
        True, description="whether each call reads the load of the model's engine at /metrics"
    )


def make(settings: Settings, services: Services) -> Tool:
    """Return the tool, for `Toolset`; raises SetupError without an address or a model."""
    return _tool(settings, NAME, "question", allow_private=services.allow_private)


def ask_model(
    url: str, model: str, *, name: str = NAME, parameter: str = "question", **settings: Any
) -> Tool:
    """Return a tool that asks the model at an address, up to `/v1`, which need not be public.

    `name` is the tool's name and `parameter` that of its only argument. `settings` are those of
    `Settings`. Raises SetupError for wrong ones.
    """
    try:
        read = Settings(url=url, model=model, **settings)
    except ValidationError as error:
        raise SetupError(f"{name}: {settings_sentence(error, Settings)}") from None
    return _tool(read, name, parameter, allow_private=True)


def _tool(settings: Settings, name: str, parameter: str, *, allow_private: bool) -> Tool:
    if QUESTION not in settings.prompt:
        raise SetupError(
            f"[tools.{NAME}] prompt: {settings.prompt!r:.60} lacks {QUESTION}; write it where the"
            " question belongs"
        )
    if settings.model is None:
        raise SetupError(
            f"the tool {name!r} has no model: set the model's name at its server in [tools.{NAME}]"
        )
    fields = {
        "model": settings.model,
        "max_tokens": settings.max_tokens,
        "temperature": settings.temperature,
        "server_tools": list(settings.server_tools) or None,
    }
    asked = Asked(
        service_url(NAME, settings.url, allow_private=allow_private).rstrip("/"),
        key_headers(NAME, settings.api_key_env),
        {name: value for name, value in fields.items() if value is not None},
        settings.system,
    )
    limit = settings.timeout_seconds or TIMEOUT_SECONDS
    model = _Model(settings, asked, allow_private, limit)

    async def ask(**arguments: str) -> str:
        return await model.ask(settings.prompt.replace(QUESTION, arguments[parameter]))

    return Tool.from_schema(
        name,
        settings.about or ABOUT,
        _parameters(parameter),
        ask,
        timeout_seconds=limit,
        safe_to_repeat=True,
        expected_seconds=settings.expected_seconds,
    )


def _parameters(name: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            name: {
                "type": "string",
                "minLength": 1,
                "maxLength": MAX_QUESTION_CHARACTERS,
                "description": "The whole question; the model sees nothing else.",
            }
        },
        "required": [name],
        "additionalProperties": False,
    }


class _Model:
    """The other model, and what was learned of its answers' times over all sessions."""

    def __init__(
        self,
        settings: Settings,
        asked: Asked,
        allow_private: bool,
        timeout_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._asked = asked
        self._allow_private = allow_private
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self._reads_load = settings.read_load
        self._expected_seconds = settings.expected_seconds
        path, model = settings.forecast_file, str(settings.model)
        self._file = None if path is None else ForecastFile(path.expanduser(), model)
        self._times = AnswerTimes()

    async def ask(self, question: str) -> str:
        """Return the answer; meanwhile tell the scheduler when it is expected."""
        context = current()
        server = await context.scope.keep(f"{NAME} {id(self)}", self._connect, ModelServer.aclose)
        began = self._clock()
        forecasting = asyncio.create_task(self._forecast(server, context))
        try:
            answer = await server.answer(question)
        finally:
            forecasting.cancel()
            await asyncio.wait([forecasting])
        if not forecasting.cancelled() and (load := forecasting.result()) is not None:
            self._times.observe(load, self._clock() - began)
        return answer

    async def _forecast(self, server: ModelServer, context: CallContext) -> int | None:
        """Tell when the answer is expected; return the load of the other engine, if known."""
        load = await server.load() if self._reads_load else None
        expected = None if self._file is None else self._file.seconds()
        if expected is None and load is not None:
            expected = self._expected_seconds
        seconds = self._times.forecast(load, expected)
        if seconds is not None:
            context.expect(seconds)
        return load

    async def _connect(self) -> ModelServer:
        return ModelServer(
            self._asked,
            allow_private=self._allow_private,
            timeout_seconds=self._timeout_seconds,
        )
