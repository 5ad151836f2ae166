"""`caesura.toml`: which tools are on and how they are set, where files go, how far a run may go."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from caesura.tools.artifacts import DEFAULT_MAX_BYTES, DEFAULT_MAX_FILE_BYTES, ArtifactStore
from caesura.tools.config.paths import default_artifacts, default_data, user_configuration
from caesura.tools.config.toolset import BUILTINS, Toolset
from caesura.tools.mcp.server import MCPServer
from caesura.tools.mcp.settings import ServerSettings, read_servers, servers_from_json
from caesura.tools.people import PeopleSettings, people_of
from caesura.tools.schema.settings_errors import settings_sentence, unknown_key
from caesura.tools.services import Services, SetupError

FILE = "caesura.toml"
SECTIONS = (
    *("tools", "limits", "artifacts", "data", "people", "mcpServers"),
    *("trace", "allow_private", "mcp_config"),
)


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LimitSettings(_Section):
    """`[limits]`: what bounds each run; a field that is left out is the program's own."""

    max_turns: int | None = Field(default=None, ge=1, description="stretches of decoding")
    max_tokens: int | None = Field(default=None, ge=1, description="completion tokens")
    max_seconds: float | None = Field(default=None, gt=0, description="wall time, tools included")
    max_result_tokens: int | None = Field(
        default=None, ge=1, description="a longer tool result is cut"
    )


class ArtifactSettings(_Section):
    """`[artifacts]`: where the files go that tools make."""

    directory: Path | None = Field(
        default=None, description="default: in the data directory of XDG"
    )
    max_bytes: int = Field(default=DEFAULT_MAX_BYTES, ge=1, description="of all files together")
    max_file_bytes: int = Field(default=DEFAULT_MAX_FILE_BYTES, ge=1, description="of one file")


class DataSettings(_Section):
    """`[data]`: where tools keep what outlives the process."""

    directory: Path | None = Field(default=None, description="default: the data directory of XDG")


class TraceSettings(_Section):
    """`[trace]`: what `caesura serve` records, and where."""

    enabled: bool = Field(default=True, description="whether anything is recorded")
    path: Path | None = Field(default=None, description="default: in the state directory of XDG")
    max_mb: float = Field(default=256, ge=1, description="of the file; the oldest entries go first")
    max_days: float = Field(default=7, gt=0, description="after which entries are deleted")
    content: bool = Field(default=False, description="whether messages and results are recorded")


class Config(_Section):
    """A configuration, by default an empty one: every tool that works without."""

    path: Path | None = None
    """The file that it was read from; paths in it are relative to the file's directory."""
    enabled: tuple[str, ...] | None = None
    """The built-in tools that are on; None: those that can be."""
    tools: dict[str, dict[str, Any]] = {}
    """What `[tools.NAME]` says."""
    limits: LimitSettings = LimitSettings()
    artifacts: ArtifactSettings = ArtifactSettings()
    data: DataSettings = DataSettings()
    people: PeopleSettings = PeopleSettings.model_validate({})
    trace: TraceSettings = TraceSettings()
    servers: dict[str, ServerSettings] = {}
    """The MCP servers."""
    allow_private: bool = False
    """Whether HTTP tools may reach addresses that are not public."""

    @classmethod
    def load(cls, path: Path | None = None) -> Self:
        """Read a file; None: ./caesura.toml, else the user's own, else the empty configuration.

        Raises SetupError, which names the file, the key and what is allowed.
        """
        if path is None:
            path = next(
                (each for each in (Path(FILE), user_configuration()) if each.is_file()), None
            )
            if path is None:
                return cls()
        path = path.absolute()
        read = _toml(path)
        for key in read:
            if key not in SECTIONS:
                raise SetupError(f"{path}{_line(path, key)}: {unknown_key(key, list(SECTIONS))}")
        section = partial(_section, path, read)
        tools, servers = dict(_table(path, read, "tools")), _table(path, read, "mcpServers")
        enabled = tools.pop("enabled", None)
        try:
            return cls(
                path=path,
                enabled=enabled if enabled is None else _names(path, enabled),
                tools={name: _tool(path, name, each) for name, each in tools.items()},
                limits=section("limits", LimitSettings),
                artifacts=section("artifacts", ArtifactSettings),
                data=section("data", DataSettings),
                people=section("people", PeopleSettings),
                trace=section("trace", TraceSettings),
                servers=_listed(path, read.get("mcp_config")) | read_servers(servers, path),
                allow_private=read.get("allow_private", False),
            )
        except ValidationError as error:
            raise SetupError(f"{path}: {settings_sentence(error, cls)}") from None

    @property
    def trace_path(self) -> Path | None:
        """The file of recordings that is configured."""
        return self._place(self.trace.path)

    def services(self) -> Services:
        """What the tools share, as it is configured."""
        store = ArtifactStore(
            self._place(self.artifacts.directory) or default_artifacts(),
            max_bytes=self.artifacts.max_bytes,
            max_file_bytes=self.artifacts.max_file_bytes,
        )
        data = self._place(self.data.directory) or default_data()
        services = Services(store, data, self.allow_private)
        people_of(services, self.people)
        return services

    def toolset(self, only: Iterable[str] | None = None) -> Toolset:
        """The tools as they are configured, not yet started.

        only: built-in tools and MCP servers, by name, instead of all that are on. Raises
        SetupError for a name that nobody knows, and for a server that needs a package or a
        variable that is not there.
        """
        wanted = None if only is None else list(only)
        for name in wanted or ():
            if name not in BUILTINS and name not in self.servers:
                raise SetupError(f"--tool: {unknown_key(name, [*BUILTINS, *self.servers])}")
        services = self.services()
        servers = [
            MCPServer(name, server, artifacts=services.artifacts)
            for name, server in self.servers.items()
            if (not server.disabled if wanted is None else name in wanted)
        ]
        return Toolset(
            services,
            self.tools,
            enabled=self.enabled if wanted is None else [n for n in wanted if n in BUILTINS],
            sources=servers,
            max_result_tokens=self.limits.max_result_tokens,
            origin=self.path,
        )

    def _place(self, path: Path | None) -> Path | None:
        if path is None or self.path is None:
            return path
        return self.path.parent / path.expanduser()


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise SetupError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SetupError(f"{path}: is not UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise SetupError(f"{path}: not valid TOML: {error}") from None


def _line(path: Path, key: str) -> str:
    """The number of the line on which a key of the top level is first said, for messages."""
    said = re.compile(rf"\s*(\[+\s*)?[\"']?{re.escape(key)}\b")
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if said.match(line):
            return f", line {number}"
    return ""


def _table(path: Path, read: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = read.get(name, {})
    if not isinstance(table, dict):
        raise SetupError(f"{path}{_line(path, name)}: {name!r} has to be a table, [{name}]")
    return table


def _section(path: Path, read: Mapping[str, Any], name: str, kind: type[BaseModel]) -> Any:
    try:
        return kind.model_validate(_table(path, read, name))
    except ValidationError as error:
        said = settings_sentence(error, kind)
        raise SetupError(f"{path}{_line(path, name)}: [{name}]: {said}") from None


def _names(path: Path, given: Any) -> tuple[str, ...]:
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        raise SetupError(f"{path}: [tools]: enabled has to be a list of names")
    for name in given:
        if name not in BUILTINS:
            raise SetupError(f"{path}: [tools]: enabled: {unknown_key(name, list(BUILTINS))}")
    return tuple(given)


def _tool(path: Path, name: str, given: Any) -> dict[str, Any]:
    if name not in BUILTINS:
        raise SetupError(f"{path}: [tools]: {unknown_key(name, ['enabled', *BUILTINS])}")
    if not isinstance(given, dict):
        raise SetupError(f"{path}: [tools]: {name!r} has to be a table, [tools.{name}]")
    return given


def _listed(path: Path, given: Any) -> dict[str, ServerSettings]:
    """The servers of the JSON file that `mcp_config` names."""
    if given is None:
        return {}
    if not isinstance(given, str):
        raise SetupError(f"{path}: mcp_config has to be the name of a JSON file")
    return servers_from_json(path.parent / Path(given).expanduser())
