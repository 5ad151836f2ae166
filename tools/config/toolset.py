"""The tools of a process: configured built-ins and sources, their shared services and clean-up."""

import asyncio
import importlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import ValidationError

from caesura.tools.closing import AsyncClosing
from caesura.tools.config.functions import FUNCTION, FunctionSettings, function_tool
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

LOG = logging.getLogger(__name__)
Settings = TypeVar("Settings", bound=ToolSettings)


@dataclass(frozen=True, slots=True)
class Builtin:
    """A built-in tool. Its module has `Settings`, a `ToolSettings`, and `make(settings, services)`.

    `needs_settings`: the tool needs its own settings, so it is not enabled by default.
    """

    name: str
    module: str
    about: str
    needs_settings: bool = False
    shares: tuple[Sequence[str], Sequence[str]] = ((), ())
    """Tools of which it has settings as well, and the keys of these."""


_SANDBOX = (
    ("python", "shell", "files"),
    (
        *("folder", "write_back", "skip", "memory_mb", "disk_mb", "processes"),
        *("interpreter", "sandboxes"),
    ),
)
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
        Builtin("python", "caesura.tools.code.python", "Python in a sandbox", True, _SANDBOX),
        Builtin("shell", "caesura.tools.code.shell", "commands in a sandbox", True, _SANDBOX),
        Builtin("files", "caesura.tools.code.files", "files in a sandbox", True, _SANDBOX),
    )
}
_OF_THE_TOOL = ("timeout_seconds", "retries", "concurrency", "max_result_tokens", "breaker")


class Toolset(AsyncClosing):
    """Makes the tools of a process with the services that they share, and starts sources of more.

    They are built-in tools, and the Python functions that the settings name.

        async with Toolset(services, enabled=["calculator", "search"]) as tools:
            Dispatcher(tools.registry)

    settings: the tables `[tools.NAME]`, by the tools' names. enabled: the tools to use; None:
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
        """Why each missing tool could not be enabled, by name; filled by `start`."""
        self.settings: dict[str, ToolSettings] = {}
        """The settings of the tools that were made, by name."""
        self._settings = {name: dict(each) for name, each in (settings or {}).items()}
        self._enabled = None if enabled is None else list(dict.fromkeys(enabled))
        self._max_result_tokens = max_result_tokens
        self._origin = origin
        self._made: dict[str, Tool] = {}
        self._ready: dict[str, Tool] = {}
        self._combined: Combined | None = None

    @property
    def names(self) -> list[str]:
        """The names of all tools that `make` knows: the built-ins, then the functions."""
        functions = [name for name, each in self._settings.items() if FUNCTION in each]
        return [*BUILTINS, *(name for name in functions if name not in BUILTINS)]

    def make(self, name: str) -> Tool:
        """Return the tool of that name, made once.

        Raises SetupError for an unknown name, wrong settings, or a missing package or function.
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

    def tool(self, name: str) -> Tool:
        """Return the tool of that name, ready to be called, though it may not be enabled.

        Raises SetupError as `make` does.
        """
        if name not in self._ready:
            self._ready[name] = self.ready(self.make(name))
        return self._ready[name]

    def of_source(self, name: str) -> list[Tool]:
        """Return the current tools of the source of that name."""
        origins = {} if self._combined is None else self._combined.origins
        return [tool for tool in self.registry if origins.get(tool.name) == name]

    async def start(self) -> Registry:
        """Make the enabled tools, start the sources, and return the registry, which follows them.

        Raises SetupError for a configured tool that cannot be set up.
        """
        return await self.hold(self.enabled_tools(), self.sources)

    async def hold(self, own: Iterable[Tool], sources: Sequence[ToolSource]) -> Registry:
        """Start these sources, and keep the registry equal to `own` and the sources' tools.

        Raises SetupError where a required source does not start; then no source is started.
        """
        combined, stack = Combined(own, sources, self._once_ready), AsyncExitStack()

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
        self._combined = combined
        self.registry.hold(combined.tools())
        return self.registry

    def _once_ready(self, tool: Tool) -> Tool:
        """Return the tool that is ready; one of this toolset's own is always the same object."""
        own = self._made.get(tool.name) is tool
        return self.tool(tool.name) if own else self.ready(tool)

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

    def enabled_tools(self) -> list[Tool]:
        """Return the built-in tools and the functions that are enabled.

        Raises SetupError for a configured tool that cannot be set up.
        """
        if self._enabled is not None:
            return [self.make(name) for name in self._enabled]
        made = []
        for name in self.names:
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
        """Return why the configuration disables a tool; None if it does not."""
        if self._enabled is not None:
            return None if name in self._enabled else "not among the enabled tools"
        needs = name in BUILTINS and BUILTINS[name].needs_settings
        if needs and name not in self._settings:
            return f"needs [tools.{name}] in the configuration"
        return None

    def _make(self, name: str) -> Tool:
        if name not in BUILTINS and name in self.names:
            return self._function(name)
        if name not in BUILTINS:
            raise SetupError(f"[tools]: {unknown_key(name, self.names)}")
        try:
            module = importlib.import_module(BUILTINS[name].module)
            kind, make = module.Settings, module.make
        except (ImportError, AttributeError) as error:
            raise SetupError(f"the tool {name!r} cannot be loaded: {error}") from None
        given = self._of_others(name) | self._settings.get(name, {})
        settings = _settings(name, kind, given, self._origin)
        self.settings[name] = settings
        return _adjusted(make(settings, self.services), settings)

    def _of_others(self, name: str) -> dict[str, Any]:
        """Return settings that the tables of other tools give to a tool as well."""
        names, keys = BUILTINS[name].shares
        found: dict[str, Any] = {}
        for other in names:
            if other != name and other in self._settings:
                kind = importlib.import_module(BUILTINS[other].module).Settings
                said = _settings(other, kind, self._settings[other], self._origin)
                found |= {key: getattr(said, key) for key in said.model_fields_set & set(keys)}
        return found

    def _function(self, name: str) -> Tool:
        settings = _settings(name, FunctionSettings, self._settings[name], self._origin)
        self.settings[name] = settings
        folder = None if self._origin is None else self._origin.parent
        made = function_tool(name, settings, folder)
        if not made.description:
            LOG.warning("the tool %s has no description, by which a model chooses", name)
        return _adjusted(made, settings)


async def _ended(tasks: Sequence[asyncio.Task[None]]) -> None:
    if tasks:
        await asyncio.wait(tasks)


def _settings(
    name: str, kind: type[Settings], given: Mapping[str, Any], origin: Path | None
) -> Settings:
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
