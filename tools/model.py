"""The ask_model tool: asks another language model, behind any OpenAI-style server.

While the other model works, the request that asks it is paused. So a call also forecasts how long
its answer will take. The load is the number of requests that the model's engine runs or queues,
read from vLLM's Prometheus metrics. The forecast is the mean of earlier answers, in which those at
a similar load count most. An expected time counts as a few answers at any load. It may come from a
file that a plan or a measurement wrote: `{"models": {"NAME": {"seconds": 3.2}}}`.
"""

import asyncio
import json
import re
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import exp, inf, log1p
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from caesura.tools.context import CallContext, current
from caesura.tools.endpoint import key_headers, service_url
from caesura.tools.errors import ToolError
from caesura.tools.net import HttpClient, HttpError, Outgoing
from caesura.tools.services import Services, SetupError, ToolSettings, settings_sentence
from caesura.tools.tool import Tool

MAX_METRICS_BYTES = 2 * 2**20
"""Limit for an engine's answer at `/metrics`."""

_REQUESTS = re.compile(
    r"^vllm:num_requests_(?:running|waiting)(?:\{(?P<labels>[^}]*)\})? (?P<number>[0-9.eE+]+)$",
    re.MULTILINE,
)
_MODEL = re.compile(r'model_name="([^"]*)"')


def load_in(metrics: str, model: str) -> int | None:
    """Return how many requests the engine runs or queues for a model; None if it does not say.

    If no line names the model, the requests of all models count: a server may answer to several
    names of one model, and label its metrics with the first.
    """
    found = [
        (match["labels"] or "", float(match["number"])) for match in _REQUESTS.finditer(metrics)
    ]
    own = [number for labels, number in found if _MODEL.findall(labels) == [model]]
    numbers = own or [number for _, number in found]
    return round(sum(numbers)) if numbers else None


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
        request = Outgoing(f"{asked.url}/chat/completions", headers=asked.headers, body=body)
        return _text_of(await self._client.json(request))

    async def load(self) -> int | None:
        """Return how many requests its engine runs or queues; None if that cannot be read."""
        asked = self._asked
        url = f"{asked.url.removesuffix('/v1')}/metrics"
        request = Outgoing(url, headers=asked.headers, accept=("text/plain",))
        try:
            reply = await self._metrics.file(request)
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


MAX_FILE_BYTES = 2**20


class ForecastFile:
    """Reads the file again whenever it has changed."""

    def __init__(self, path: Path, model: str) -> None:
        """Create it; raises SetupError if the file exists and is not a file of forecasts."""
        self._path = path
        self._model = model
        self._read_as: tuple[int, int] | None = None
        self._seconds: float | None = None
        try:
            self._read()
        except ValueError as error:
            raise SetupError(f"[tools.ask_model] forecast_file: {path}: {error}") from None

    def seconds(self) -> float | None:
        """Return the model's expected seconds; None if the file does not say or cannot be read."""
        try:
            self._read()
        except ValueError:
            return None
        return self._seconds

    def _read(self) -> None:
        try:
            found = self._path.stat()
            version = (found.st_mtime_ns, found.st_size)
            if version == self._read_as:
                return
            self._read_as, self._seconds = version, None
            if found.st_size > MAX_FILE_BYTES:
                raise ValueError(f"has {found.st_size} bytes, more than {MAX_FILE_BYTES}")
            text = self._path.read_text(encoding="utf-8")
        except OSError:
            self._read_as = self._seconds = None  # a run may write the file later
            return
        self._seconds = _seconds_of(text, self._model)


def _seconds_of(text: str, model: str) -> float | None:
    try:
        data = json.loads(text)
        about = data["models"].get(model)
        seconds = None if about is None else float(about["seconds"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(
            f'is no file of forecasts, {{"models": {{NAME: {{"seconds": 3.2}}}}}}: {error!r}'
        ) from None
    if seconds is not None and not 0 < seconds < inf:
        raise ValueError(f"seconds of {model!r} must be positive and finite, got {seconds!r}")
    return seconds


SAMPLE_SIZE = 128
"""The number of last answers that count."""

PRIOR_WEIGHT = 2.0
"""The number of answers that the expected time counts as."""

WIDTH = 0.35
"""Standard deviation of the weights, in the logarithm of one plus the load."""

MIN_WEIGHT = 0.5
"""Without an expected time, answers of at least this weight must have come at a similar load."""


class AnswerTimes:
    """The seconds of one model's answers."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, float]] = deque(maxlen=SAMPLE_SIZE)

    def observe(self, load: int, seconds: float) -> None:
        """Learn that an answer took `seconds`, which was asked for at this load."""
        self._seen.append((log1p(max(0, load)), max(0.0, seconds)))

    def forecast(self, load: int | None, expected_seconds: float | None = None) -> float | None:
        """Return the expected seconds of an answer that is asked for now.

        Returns `expected_seconds` if the load is unknown, and None if nothing is known.
        """
        if load is None:
            return expected_seconds
        total = weights = 0.0
        if expected_seconds is not None:
            total, weights = PRIOR_WEIGHT * expected_seconds, PRIOR_WEIGHT
        here = log1p(max(0, load))
        for there, seconds in self._seen:
            weight = exp(-(((here - there) / WIDTH) ** 2) / 2)
            total, weights = total + weight * seconds, weights + weight
        if weights < MIN_WEIGHT or total <= 0:
            return None
        return total / weights


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
