"""The built-in tools, made as they are configured; what they share, and its end."""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from pydantic import ValidationError

from caesura.tools.arguments import validation_sentence
from caesura.tools.services import Services, SetupError, ToolSettings
from caesura.tools.tool import Tool


@dataclass(frozen=True, slots=True)
class Builtin:
    """A built-in tool: its module has `Settings`, a `ToolSettings`, and `make(settings, services)`.

    `needs_settings`: it does nothing without being configured, so that it is not on by default.
    """

    name: str
    module: str
    about: str
    needs_settings: bool = False


BUILTINS = {
    each.name: each
    for each in (
        Builtin("calculator", "caesura.tools.math", "exact arithmetic"),
        Builtin("clock", "caesura.tools.clock", "date and time anywhere"),
        Builtin("search", "caesura.tools.search", "questions to a corpus, Wikipedia or a service"),
        Builtin("environment", "caesura.tools.environment", "text worlds: ALFWorld, Gymnasium"),
        Builtin("render_chart", "caesura.tools.picture.chart", "charts from Vega-Lite"),
        Builtin("render_svg", "caesura.tools.picture.svg", "pictures from SVG"),
        Builtin(
            "generate_image",
            "caesura.tools.picture.generate",
            "pictures by a diffusion model or a service",
            needs_settings=True,
        ),
        Builtin("speak", "caesura.tools.speech", "speech by espeak-ng, piper or a service"),
        Builtin("ask_user", "caesura.tools.people", "questions to a person"),
    )
}
_OF_THE_TOOL = ("timeout_seconds", "retries", "concurrency", "max_result_tokens", "breaker")


class Toolset:
    """Makes built-in tools with the services that they share; `aclose` ends what they started.

    settings: by the tools' names, what `[tools.NAME]` says.
    """

    def __init__(
        self, services: Services, settings: Mapping[str, Mapping[str, Any]] | None = None
    ) -> None:
        self.services = services
        self._settings = dict(settings or {})
        self._made: dict[str, Tool] = {}

    def make(self, name: str) -> Tool:
        """The built-in tool of that name, made once.

        Raises SetupError where it is not known, misconfigured, or lacks a package.
        """
        if name not in self._made:
            if name not in BUILTINS:
                raise SetupError(f"no built-in tool {name!r}: there are {', '.join(BUILTINS)}")
            module = importlib.import_module(BUILTINS[name].module)
            settings = _settings(name, module.Settings, self._settings.get(name, {}))
            self._made[name] = _adjusted(module.make(settings, self.services), settings)
        return self._made[name]

    async def aclose(self) -> None:
        """End what the tools have started. May be called twice."""
        await self.services.stack.aclose()

    async def __aenter__(self) -> Self:
        """Return itself."""
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Close it."""
        await self.aclose()


def _settings(name: str, kind: type[ToolSettings], given: Mapping[str, Any]) -> ToolSettings:
    try:
        return kind.model_validate(dict(given))
    except ValidationError as error:
        sentence = validation_sentence(error, list(kind.model_fields))
        raise SetupError(f"[tools.{name}]: {sentence}") from None


def _adjusted(tool: Tool, settings: ToolSettings) -> Tool:
    """The tool with what the configuration says of it instead of its own."""
    said = {name: getattr(settings, name) for name in _OF_THE_TOOL}
    changes = {name: value for name, value in said.items() if value is not None}
    try:
        return replace(tool, **changes, approval=tool.approval or settings.approval)
    except ValueError as error:
        raise SetupError(str(error)) from None
