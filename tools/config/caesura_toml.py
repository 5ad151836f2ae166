"""`caesura.toml`: which tools are enabled, their settings, directories, and limits of a run.

A `caesura.toml` in the current directory may come with another person's repository. It can name
programs to start, Python modules to import and files to read, and put variables of the user's
environment into what programs get. So the user must have allowed it, as it is.
"""

import hashlib
import json
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from caesura.tools.artifacts import DEFAULT_MAX_BYTES, DEFAULT_MAX_FILE_BYTES, ArtifactStore
from caesura.tools.config.agents import AgentSettings, RunLimits, needed, read_agents
from caesura.tools.config.functions import FUNCTION
from caesura.tools.config.toolset import BUILTINS, Toolset
from caesura.tools.mcp.server import MCPServer
from caesura.tools.mcp.settings import ServerSettings, read_servers, servers_from_json
from caesura.tools.people import PeopleSettings, people_of
from caesura.tools.registry import TOOL_NAME
from caesura.tools.services import (
    Services,
    SetupError,
    default_artifacts,
    default_data,
    settings_sentence,
    unknown_key,
    user_configuration,
)

ALLOW_ALL = "CAESURA_TRUST_CONFIG"
"""Set to 1, this environment variable allows every configuration."""


def digest_of(parts: object) -> str:
    """Return the digest of what a configuration holds."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def is_trusted(path: Path, digest: str) -> bool:
    """Return whether the user has allowed the file at a path, as it is now."""
    return os.environ.get(ALLOW_ALL) == "1" or _known().get(str(path)) == digest


def trust(path: Path, digest: str) -> None:
    """Allow the file at a path until it changes. Raises `SetupError`."""
    place = _place()
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        part = place.with_name(f"{place.name}.{os.getpid()}")
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump({**_known(), str(path): digest}, file, indent=1)
        part.replace(place)
    except OSError as error:
        raise SetupError(f"{place} cannot be written: {error.strerror}") from error


def _known() -> dict[str, str]:
    """Return the digests of allowed files, by path; a broken file allows none."""
    try:
        read = json.loads(_place().read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(read, dict):
        return {}
    return {str(path): each for path, each in read.items() if isinstance(each, str)}


def _place() -> Path:
    return user_configuration().with_name("trusted.json")


FILE = "caesura.toml"
SECTIONS = (
    *("tools", "agents", "limits", "artifacts", "data", "people", "mcpServers"),
    *("trace", "trajectories", "allow_private", "mcp_config"),
)


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class LimitSettings(RunLimits):
    """`[limits]`: bounds of each run; a field that is left out keeps the program's default."""

    max_result_tokens: int | None = Field(
        default=None, ge=1, description="longer tool results are cut"
    )

    @model_validator(mode="after")
    def _check_prices(self) -> Self:
        if self.max_cost is not None and self.prices is None:
            raise ValueError("max_cost needs prices = { prompt = ..., completion = ... }")
        return self


class ArtifactSettings(_Section):
    """`[artifacts]`: where the files that tools make are stored."""

    directory: Path | None = Field(default=None, description="default: in the XDG data directory")
    max_bytes: int = Field(default=DEFAULT_MAX_BYTES, ge=1, description="of all files together")
    max_file_bytes: int = Field(default=DEFAULT_MAX_FILE_BYTES, ge=1, description="of one file")


class DataSettings(_Section):
    """`[data]`: where tools store files that outlive the process."""

    directory: Path | None = Field(default=None, description="default: the XDG data directory")


class TraceSettings(_Section):
    """`[trace]`: what `caesura serve` records, and where."""

    enabled: bool = Field(default=True, description="whether the server records")
    path: Path | None = Field(default=None, description="default: in the XDG state directory")
    max_mb: float = Field(default=256, ge=1, description="of the file; the oldest entries go first")
    max_days: float = Field(default=7, gt=0, description="after which entries are deleted")
    content: bool = Field(default=False, description="whether messages and results are recorded")
    title: str = Field(default="", description="of recordings; default: the command and the model")
    public_url: str = Field(
        default="",
        pattern=r"^(https?://[^\s?#]+)?$",
        description="where the server is for those who read spans, for links to the page",
    )
    users: Literal["plain", "digest", "off"] = Field(
        default="plain", description="how the users that requests name are recorded"
    )
    mask: str | None = Field(
        default=None,
        description="a function over each text before it is recorded or sent, as module:attribute",
    )


class TrajectorySettings(_Section):
    """`[trajectories]`: whether `caesura serve` keeps the tokens of sessions, and how many."""

    enabled: bool = Field(default=False, description="whether they are kept")
    max_sessions: int = Field(
        default=10_000, ge=1, description="the oldest go first, of the key that has the most"
    )
    max_tokens: int = Field(
        default=100_000_000,
        ge=1,
        description="of all sessions together, 4 bytes each, and 8 where sampled",
    )
    max_key_sessions: int | None = Field(
        default=None, ge=1, description="of one key, where there are keys; default: half of all"
    )
    max_key_tokens: int | None = Field(
        default=None, ge=1, description="of one key's sessions together; default: half of all"
    )
    max_hours: float = Field(
        default=24, gt=0, description="after a session's last request, when it is deleted"
    )


class Config(_Section):
    """A configuration; the empty one enables every tool that needs no settings."""

    path: Path | None = None
    """The file that was read; paths in it are relative to its directory."""
    enabled: tuple[str, ...] | None = None
    """The built-in tools and functions that are enabled; None: all that can be."""
    tools: dict[str, dict[str, Any]] = {}
    """The tables `[tools.NAME]`."""
    agents: dict[str, AgentSettings] = {}
    limits: LimitSettings = LimitSettings()
    artifacts: ArtifactSettings = ArtifactSettings()
    data: DataSettings = DataSettings()
    people: PeopleSettings = PeopleSettings.model_validate({})
    trace: TraceSettings = TraceSettings()
    trajectories: TrajectorySettings = TrajectorySettings()
    servers: dict[str, ServerSettings] = {}
    """The MCP servers."""
    allow_private: bool = False
    """Whether HTTP tools may reach addresses that are not public."""

    @classmethod
    def load(cls, path: Path | None = None, *, for_reading: bool = False) -> Self:
        """Read a file; None: ./caesura.toml, else the user's file, else an empty configuration.

        Raises SetupError, which names the file, the key and the allowed keys. A ./caesura.toml that
        was not named must be trusted, if it starts programs, imports Python modules or uses
        variables of the environment. With `for_reading` it need not: the caller starts nothing of
        it, and only wants to know where files lie.
        """
        if path is not None:
            return cls._read(path.absolute())
        if Path(FILE).is_file():
            here = cls._read(Path(FILE).absolute())
            if not for_reading:
                here._check_trusted()
            return here
        path = user_configuration()
        return cls._read(path.absolute()) if path.is_file() else cls()

    @property
    def digest(self) -> str:
        """The digest of what it holds and of the MCP servers that it names elsewhere."""
        assert self.path is not None
        servers = {name: each.model_dump(mode="json") for name, each in self.servers.items()}
        return digest_of([self.path.read_text(errors="replace"), servers])

    @property
    def functions(self) -> tuple[str, ...]:
        """The names of the tools that are Python functions."""
        return tuple(name for name, each in self.tools.items() if name not in BUILTINS)

    @property
    def reaches_out(self) -> bool:
        """Whether it starts programs, imports Python modules, or reads other files or variables."""
        assert self.path is not None
        agents = self.agents.values()
        files = any(each.instructions_file or each.agent for each in agents)
        named = bool(self.servers or self.functions or files or self.trace.mask)
        named = named or any(map(self._leaves_its_folder, self.tools.values()))
        return named or "${" in self.path.read_text(errors="replace")

    def _check_trusted(self) -> None:
        """Raise SetupError if it reaches out, and the user does not know it."""
        assert self.path is not None
        if self.reaches_out and not is_trusted(self.path, self.digest):
            raise SetupError(
                f"{self.path} starts MCP servers, imports Python modules, reads files or uses"
                " variables of your environment, and you have not allowed it as it is now: read it,"
                " then run `caesura tools trust` here, name it with --config, or set"
                f" {ALLOW_ALL}=1"
            )

    def _leaves_its_folder(self, table: Mapping[str, Any]) -> bool:
        """Return whether a tool runs a program that the file names, or reads beside its folder."""
        assert self.path is not None
        own = self.path.parent.resolve()
        folder = own / Path(str(table.get("folder", "."))).expanduser()
        return "interpreter" in table or not folder.resolve().is_relative_to(own)

    @classmethod
    def _read(cls, path: Path) -> Self:
        read = _toml(path)
        for key in read:
            if key not in SECTIONS:
                raise SetupError(f"{path}{_line(path, key)}: {unknown_key(key, list(SECTIONS))}")
        section = partial(_section, path, read)
        tools, servers = dict(_table(path, read, "tools")), _table(path, read, "mcpServers")
        enabled = tools.pop("enabled", None)
        functions = [name for name, each in tools.items() if _is_function(each)]
        listed = _listed(path, read.get("mcp_config")) | read_servers(servers, path)
        known = [*BUILTINS, *functions, *listed]
        try:
            return cls(
                path=path,
                enabled=enabled if enabled is None else _names(path, enabled, functions),
                tools={name: _tool(path, name, each) for name, each in tools.items()},
                limits=section("limits", LimitSettings),
                artifacts=section("artifacts", ArtifactSettings),
                data=section("data", DataSettings),
                people=section("people", PeopleSettings),
                trace=section("trace", TraceSettings),
                trajectories=section("trajectories", TrajectorySettings),
                servers=listed,
                agents=read_agents(_table(path, read, "agents"), known, path),
                allow_private=read.get("allow_private", False),
            )
        except ValidationError as error:
            raise SetupError(f"{path}: {settings_sentence(error, cls)}") from None

    @property
    def trace_path(self) -> Path | None:
        """The configured file of recordings."""
        return self._place(self.trace.path)

    def services(self) -> Services:
        """Return the services that the tools share, as configured."""
        store = ArtifactStore(
            self._place(self.artifacts.directory) or default_artifacts(),
            max_bytes=self.artifacts.max_bytes,
            max_file_bytes=self.artifacts.max_file_bytes,
        )
        data = self._place(self.data.directory) or default_data()
        services = Services(store, data, self.allow_private)
        people_of(services, self.people)
        return services

    def tools_of(self, agent: str) -> list[str]:
        """Return the names of the tools and MCP servers that an agent uses, also by its agents.

        Raises SetupError for an unknown agent.
        """
        if agent not in self.agents:
            where = f"{self.path}: " if self.path is not None else ""
            known = ", ".join(self.agents) or "none"
            raise SetupError(f"{where}there is no agent {agent!r} in [agents]; there are: {known}")
        return needed(agent, self.agents)

    def toolset(self, only: Iterable[str] | None = None) -> Toolset:
        """Return the configured tools, not yet started.

        only: names of tools and MCP servers, instead of all that are enabled. Raises SetupError for
        an unknown name, and for a server that needs a package or a variable that is missing.
        """
        wanted = None if only is None else list(only)
        own = [*BUILTINS, *self.functions]
        for name in wanted or ():
            if name not in own and name not in self.servers:
                raise SetupError(f"--tool: {unknown_key(name, [*own, *self.servers])}")
        services = self.services()
        servers = [
            MCPServer(name, server, artifacts=services.artifacts)
            for name, server in self.servers.items()
            if (not server.disabled if wanted is None else name in wanted)
        ]
        return Toolset(
            services,
            self.tools,
            enabled=self.enabled if wanted is None else [n for n in wanted if n in own],
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
    """Return the line number at which a top-level key first occurs, for messages."""
    said = re.compile(rf"\s*(\[+\s*)?[\"']?{re.escape(key)}\b")
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if said.match(line):
            return f", line {number}"
    return ""


def _table(path: Path, read: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = read.get(name, {})
    if not isinstance(table, dict):
        raise SetupError(f"{path}{_line(path, name)}: {name!r} must be a table, [{name}]")
    return table


def _section(path: Path, read: Mapping[str, Any], name: str, kind: type[BaseModel]) -> Any:
    try:
        return kind.model_validate(_table(path, read, name))
    except ValidationError as error:
        said = settings_sentence(error, kind)
        raise SetupError(f"{path}{_line(path, name)}: [{name}]: {said}") from None


def _names(path: Path, given: Any, functions: list[str]) -> tuple[str, ...]:
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        raise SetupError(f"{path}: [tools]: enabled must be a list of names, got {given!r}")
    for name in given:
        if name not in BUILTINS and name not in functions:
            known = [*BUILTINS, *functions]
            raise SetupError(f"{path}: [tools]: enabled: {unknown_key(name, known)}")
    return tuple(given)


def _is_function(given: Any) -> bool:
    return isinstance(given, dict) and FUNCTION in given


def _tool(path: Path, name: str, given: Any) -> dict[str, Any]:
    if name not in BUILTINS and not _is_function(given):
        known = unknown_key(name, ["enabled", *BUILTINS])
        hint = f'; a Python function needs [tools.{name}] function = "module:attribute"'
        raise SetupError(f"{path}: [tools]: {known}{hint}")
    if not isinstance(given, dict):
        raise SetupError(f"{path}: [tools]: {name!r} must be a table, [tools.{name}]")
    if name in BUILTINS and FUNCTION in given:
        raise SetupError(
            f"{path}: [tools.{name}]: {name!r} is a built-in tool: give the function"
            f" {given[FUNCTION]!r} another name"
        )
    if not TOOL_NAME.fullmatch(name):
        raise SetupError(
            f"{path}: [tools]: {name!r} is no name of a tool: use 1 to 64 letters, digits, '_' and"
            " '-', starting with a letter or '_'"
        )
    return given


def _listed(path: Path, given: Any) -> dict[str, ServerSettings]:
    """Return the servers of the JSON file that `mcp_config` names."""
    if given is None:
        return {}
    if not isinstance(given, str):
        raise SetupError(f"{path}: mcp_config must be the name of a JSON file, got {given!r}")
    return servers_from_json(path.parent / Path(given).expanduser())
