"""The tools of a process: configured built-ins and sources, their shared services and clean-up."""

import asyncio
import importlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from pydantic import ValidationError

from caesura.tools.closing import AsyncClosing
from caesura.tools.people import people_of, with_approval
from caesura.tools.registry import Registry
from caesura.tools.services import (
    Services,
    SetupError,
    ToolSettings,
    settings_sentence,
    unknown_key,
)
from caesura.tools.source import Combined, ToolSource
from caesura.tools.tool import Tool


@dataclass(frozen=True, slots=True)
class Builtin:
    """A built-in tool. Its module has `Settings`, a `ToolSettings`, and `make(settings, services)`.

    `needs_settings`: the tool needs its own settings, so it is not enabled by default.
    """

    name: str
    module: str
    about: str
    needs_settings: bool = False


BUILTINS = {
    each.name: each
    for each in (
        Builtin("calculator", "caesura.tools.calculator.tool", "exact arithmetic"),
        Builtin("clock", "caesura.tools.clock", "date and time anywhere"),
        Builtin("search", "caesura.tools.search", "questions to a corpus, Wikipedia or a service"),
        Builtin(
            "web_search", "caesura.tools.search.web", "searches of the web", needs_settings=True
        ),
        Builtin("web_fetch", "caesura.tools.search.page", "pages of the web", needs_settings=True),
        Builtin("environment", "caesura.tools.environment", "text worlds: ALFWorld, Gymnasium"),
        Builtin("render_chart", "caesura.tools.picture.chart", "charts from Vega-Lite"),
        Builtin("render_svg", "caesura.tools.picture.svg", "pictures from SVG"),
        Builtin(
            "generate_image",
            "caesura.tools.picture.diffusion",
            "pictures by a diffusion model or a service",
            needs_settings=True,
        ),
        Builtin("speak", "caesura.tools.speech", "speech by espeak-ng, piper or a service"),
        Builtin(
            "ask_model",
            "caesura.tools.model",
            "questions to another language model",
            needs_settings=True,
        ),
        Builtin("ask_user", "caesura.tools.people", "questions to a person"),
        Builtin("python", "caesura.tools.code.python", "Python in a sandbox", needs_settings=True),
        Builtin("shell", "caesura.tools.code.shell", "commands in a sandbox", needs_settings=True),
        Builtin("files", "caesura.tools.code.files", "files in a sandbox", needs_settings=True),
    )
}
_OF_THE_TOOL = ("timeout_seconds", "retries", "concurrency", "max_result_tokens", "breaker")


class Toolset(AsyncClosing):
    """Makes built-in tools with the services that they share, and starts sources of more tools.

        async with Toolset(services, enabled=["calculator", "search"]) as tools:
            Dispatcher(tools.registry)

    settings: the tables `[tools.NAME]`, by the tools' names. enabled: the built-ins to use; None:
    those that are configured, and those that need no settings. sources: for example MCP servers.
    max_result_tokens: limit for tools that do not set their own. origin: the configuration file,
    for messages and relative paths. A tool with `approval` asks a person before each call.
    """

    def __init__(
        self,
        services: Services,
        settings: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        enabled: Iterable[str] | None = (),
        sources: Sequence[ToolSource] = (),
        max_result_tokens: int | None = None,
        origin: Path | None = None,
    ) -> None:
        self.services = services
        self.sources = tuple(sources)
        self.registry = Registry()
        """The current tools; empty before `start`."""
        self.off: dict[str, str] = {}
        """Why each missing built-in could not be enabled, by name; filled by `start`."""
        self.settings: dict[str, ToolSettings] = {}
        """The settings of the tools that were made, by name."""
        self._settings = {name: dict(each) for name, each in (settings or {}).items()}
        self._enabled = None if enabled is None else list(dict.fromkeys(enabled))
        self._max_result_tokens = max_result_tokens
        self._origin = origin
        self._made: dict[str, Tool] = {}

    def make(self, name: str) -> Tool:
        """Return the built-in tool of that name, made once.

        Raises SetupError for an unknown name, wrong settings, or a missing package.
        """
        if name not in self._made:
            try:
                self._made[name] = self._make(name)
            except SetupError as error:
                if self._origin is None or name not in self._settings:
                    raise
                raise SetupError(f"{self._origin}: {error}") from None
        return self._made[name]

    def ready(self, tool: Tool) -> Tool:
        """Return the tool with bounded results and, where it asks for it, a person's approval."""
        if tool.max_result_tokens is None and self._max_result_tokens is not None:
            tool = replace(tool, max_result_tokens=self._max_result_tokens)
        return with_approval(tool, people_of(self.services)) if tool.approval else tool

    async def start(self) -> Registry:
        """Make the enabled tools, start the sources, and return the registry, which follows them.

        Raises SetupError for a configured tool that cannot be set up.
        """
        return await self.hold(self.built_ins(), self.sources)

    async def hold(self, own: Iterable[Tool], sources: Sequence[ToolSource]) -> Registry:
        """Start these sources, and keep the registry equal to `own` and the sources' tools.

        Raises SetupError where a required source does not start; then no source is started.
        """
        combined, stack = Combined(own, sources, self.ready), AsyncExitStack()

        async def start(source: ToolSource) -> None:
            await source.start()
            stack.push_async_callback(source.aclose)

        starting = [asyncio.ensure_future(start(source)) for source in sources]
        try:
            await _ended(starting)
            for task in starting:
                task.result()
        except BaseException:
            for task in starting:
                task.cancel()
            await _ended(starting)
            await stack.aclose()
            raise
        self.services.at_end(stack.aclose)
        for source in sources:
            stack.callback(source.watch(lambda: self.registry.hold(combined.tools())))
        self.registry.hold(combined.tools())
        return self.registry

    async def aclose(self) -> None:
        """Stop what was started, last first. May be called twice."""
        await self.services.stack.aclose()

    async def __aenter__(self) -> Self:
        """Start the toolset."""
        try:
            await self.start()
        except BaseException:
            await self.aclose()
            raise
        return self

    def built_ins(self) -> list[Tool]:
        """Return the built-in tools that are enabled.

        Raises SetupError for a configured tool that cannot be set up.
        """
        if self._enabled is not None:
            return [self.make(name) for name in self._enabled]
        made = []
        for name in BUILTINS:
            reason = self.why_off(name)
            if reason is None:
                try:
                    made.append(self.make(name))
                except SetupError as error:
                    if name in self._settings:
                        raise
                    reason = str(error)
            if reason is not None:
                self.off[name] = reason
        return made

    def why_off(self, name: str) -> str | None:
        """Return why the configuration disables a built-in tool; None if it does not."""
        if self._enabled is not None:
            return None if name in self._enabled else "not among the enabled tools"
        if BUILTINS[name].needs_settings and name not in self._settings:
            return f"needs [tools.{name}] in the configuration"
        return None

    def _make(self, name: str) -> Tool:
        if name not in BUILTINS:
            raise SetupError(f"[tools]: {unknown_key(name, list(BUILTINS))}")
        try:
            module = importlib.import_module(BUILTINS[name].module)
            kind, make = module.Settings, module.make
        except (ImportError, AttributeError) as error:
            raise SetupError(f"the tool {name!r} cannot be loaded: {error}") from None
        settings = _settings(name, kind, self._settings.get(name, {}), self._origin)
        self.settings[name] = settings
        return _adjusted(make(settings, self.services), settings)


async def _ended(tasks: Sequence[asyncio.Task[None]]) -> None:
    if tasks:
        await asyncio.wait(tasks)


def _settings(
    name: str, kind: type[ToolSettings], given: Mapping[str, Any], origin: Path | None
) -> ToolSettings:
    said = dict(given)
    for key, value in said.items():
        field = kind.model_fields.get(key)
        # The annotation is `Path` or `Path | None`; the path is relative to the configuration file.
        if origin and field and isinstance(value, str) and "Path" in str(field.annotation):
            said[key] = str(origin.parent / Path(value).expanduser())
    try:
        return kind.model_validate(said)
    except ValidationError as error:
        raise SetupError(f"[tools.{name}]: {settings_sentence(error, kind)}") from None


def _adjusted(tool: Tool, settings: ToolSettings) -> Tool:
    """Return the tool with the configured settings in place of its own."""
    said = {name: getattr(settings, name) for name in _OF_THE_TOOL}
    changes = {name: value for name, value in said.items() if value is not None}
    try:
        return replace(tool, **changes, approval=tool.approval or settings.approval)
    except ValueError as error:
        raise SetupError(str(error)) from None
