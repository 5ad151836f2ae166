"""Lengths of first segments from prompts, in front of another predictor."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from math import log1p
from typing import Protocol

from caesura.intercept.kv.pause_durations import OVERDUE, Durations
from caesura.scheduler.predict.forecast import About, Forecast, Predictor, forecasts_by_name

PROMPT = "prompt"
"""The name of the forecasts that use every answer, in records."""

KEPT_SHARE = 0.98
"""The share of the earlier errors that is kept at each new one: about the last 50 count."""

MIN_COMPARED = 20
"""The number of first segments before errors are compared; until then answers are used."""

Tokens = tuple[float, ...]
"""Equally likely tokens of a session's first segment, ascending."""


class Answers(Protocol):
    """What a model said of the prompts of sessions, by the key of the session."""

    def find(self, key: str) -> Tokens | None:
        """Return the answer for a session, or None if there is none yet."""
        ...

    def forget(self, key: str) -> None:
        """Drop the answer for a session, which needs none any more."""
        ...


@dataclass(slots=True)
class Errors:
    """Discounted sums of the errors of log-lengths, by answers and by the other predictor."""

    compared: int = 0
    by_prompt: float = 0.0
    otherwise: float = 0.0

    def add(self, by_prompt: float, otherwise: float) -> None:
        """Count the errors of one segment."""
        self.compared += 1
        self.by_prompt = KEPT_SHARE * self.by_prompt + by_prompt
        self.otherwise = KEPT_SHARE * self.otherwise + otherwise

    @property
    def prompts_are_better(self) -> bool:
        """Return whether answers are to be used: they are not if the other predictor errs less."""
        return self.compared < MIN_COMPARED or self.by_prompt <= self.otherwise


class PromptLengths:
    """Forecasts the first segment of a session from its prompt, and all else by another predictor.

    A session without an answer gets the other predictor's forecast. So does every session while
    answers had larger errors than the other predictor over the last segments. The error is that of
    log(1 + tokens), so that long segments do not decide alone.
    """

    def __init__(self, otherwise: Predictor, answers: Answers) -> None:
        self._otherwise = otherwise
        self._answers = answers
        self.errors = Errors()

    @property
    def name(self) -> str:
        """Return the names of both predictors."""
        return f"{self._otherwise.name}+{PROMPT}"

    def forecast(self, about: About) -> Forecast:
        """Return the forecast, for a first segment by the answer if it is ready and good."""
        forecast = self._otherwise.forecast(about)
        if not self.errors.prompts_are_better:
            return forecast
        return self._answered(about, forecast) or forecast

    def parts(self, about: About) -> Mapping[str, Forecast]:
        """Return the forecasts of the other predictor, and the answer's if there is one."""
        parts = forecasts_by_name(self._otherwise, about)
        answered = self._answered(about, parts[self._otherwise.name])
        return parts if answered is None else {**parts, PROMPT: answered}

    def pause(self, key: str, tool: str | None, calls: int | None = None) -> Durations:
        """Return the durations that the other predictor expects."""
        return self._otherwise.pause(key, tool, calls)

    def observe_segment(self, about: About, decoded_tokens: int, called: bool) -> None:
        """Compare both predictors with a first segment, and let the other one learn."""
        answer = self._answers.find(about.key) if not about.calls else None
        if answer:
            before = self._otherwise.forecast(replace(about, decoded_tokens=0))
            truth = log1p(decoded_tokens)
            self.errors.add(
                abs(log1p(_median(answer)) - truth),
                abs(log1p(_median(before.decode_quantiles or (before.decode_tokens,))) - truth),
            )
        self._answers.forget(about.key)
        self._otherwise.observe_segment(about, decoded_tokens, called)

    def observe_result(self, tool: str | None, tokens: int) -> None:
        """Let the other predictor learn a result."""
        self._otherwise.observe_result(tool, tokens)

    def observe_pause(self, key: str, tool: str | None, seconds: float) -> None:
        """Let the other predictor learn a pause."""
        self._otherwise.observe_pause(key, tool, seconds)

    def observe_end(self, about: About, kinds: Collection[str]) -> None:
        """Let the other predictor learn an end."""
        self._answers.forget(about.key)
        self._otherwise.observe_end(about, kinds)

    def observe_abort(self, key: str) -> None:
        """Drop the session's answer."""
        self._answers.forget(key)
        self._otherwise.observe_abort(key)

    def _answered(self, about: About, forecast: Forecast) -> Forecast | None:
        """Return the forecast with the tokens that an answer leaves, or None without any."""
        answer = self._answers.find(about.key) if not about.calls else None
        decoded = about.decoded_tokens
        left = tuple(tokens - decoded for tokens in answer or () if tokens > decoded)
        if not left:
            return None
        mean = max(sum(left) / len(left), OVERDUE * decoded)
        return replace(forecast, decode_tokens=mean, decode_quantiles=left)


def _median(tokens: Tokens) -> float:
    middle = len(tokens) // 2
    return tokens[middle] if len(tokens) % 2 else (tokens[middle - 1] + tokens[middle]) / 2
