"""Settings of an MCP server, in the customary `mcpServers` form with our additions."""

import json
import os
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from caesura.tools.services import SetupError, settings_sentence, with_variables


class ServerSettings(BaseModel):
    """One server: `command` (stdio) or `url` (streamable HTTP), and the use of its tools."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    command: str | None = Field(None, min_length=1, description="the program to start, for stdio")
    args: tuple[str, ...] = Field((), description="the program's arguments")
    env: dict[str, str] = Field({}, description="variables added to the minimal environment")
    cwd: Path | None = Field(None, description="the program's working directory")
    url: str | None = Field(
        None, pattern=r"(?i)^https?://", description="the endpoint, for streamable HTTP"
    )
    headers: dict[str, str] = Field({}, description="sent with each HTTP request")
    type: Literal["stdio", "http", "streamable-http", "streamable_http"] | None = Field(
        None, description="accepted and ignored; command or url decide"
    )
    disabled: bool = Field(False, description="ignore this server")
    required: bool = Field(False, description="refuse to start without this server")
    prefix: bool = Field(False, description="name all tools server_tool, not only on collision")
    allow: tuple[str, ...] | None = Field(None, description="the tools to use; * is a wild card")
    deny: tuple[str, ...] = Field((), description="the tools not to use; * is a wild card")
    approval: bool | tuple[str, ...] = Field(
        False, description="a person must approve each call, or calls of the tools named"
    )
    start_seconds: float = Field(30.0, gt=0, description="limit for starting the server")
    timeout_seconds: float | None = Field(60.0, gt=0, description="limit for one call")
    concurrency: int | None = Field(None, ge=1, description="calls of one tool at the same time")
    max_result_tokens: int | None = Field(None, ge=1, description="longer results are cut")
    breaker: int | None = Field(None, ge=1, description="failures in a row that suspend a tool")
    max_message_bytes: int = Field(
        8 * 2**20, ge=1024, description="a longer message from the server is an error"
    )
    restarts: int = Field(10, ge=0, description="failed connections in a row before giving up")

    @model_validator(mode="after")
    def _one_transport(self) -> "ServerSettings":
        if (self.command is None) == (self.url is None):
            raise ValueError("set either command (stdio) or url (streamable HTTP)")
        misplaced = ("args", "env", "cwd") if self.url else ("headers",)
        for name in misplaced:
            if name in self.model_fields_set:
                raise ValueError(
                    f"{name} is only for a server with {'command' if self.url else 'url'}"
                )
        return self

    @classmethod
    def read(cls, name: str, given: Mapping[str, Any]) -> "ServerSettings":
        """Return the checked settings; raises SetupError, naming the server and the key."""
        if given.get("type") == "sse":
            raise SetupError(
                f"[mcpServers.{name}]: the SSE transport is not supported; use the server's "
                "streamable HTTP endpoint"
            )
        try:
            return cls.model_validate(dict(given))
        except ValidationError as error:
            raise SetupError(f"[mcpServers.{name}]: {settings_sentence(error, cls)}") from None

    def resolved(self, name: str, environment: Mapping[str, str] | None = None) -> "ServerSettings":
        """Return the settings with `${VARIABLE}` and `${VARIABLE:-default}` filled in.

        This applies to args, env, url and headers. Raises SetupError for an unset variable.
        """
        known = os.environ if environment is None else environment

        def fill(text: str) -> str:
            try:
                return with_variables(text, known)
            except ValueError as error:
                raise SetupError(f"[mcpServers.{name}]: {error}") from None

        return self.model_copy(
            update={
                "args": tuple(fill(each) for each in self.args),
                "env": {key: fill(each) for key, each in self.env.items()},
                "url": None if self.url is None else fill(self.url),
                "headers": {key: fill(each) for key, each in self.headers.items()},
            }
        )

    def uses(self, tool: str) -> bool:
        """Return whether the server's tool of that name is enabled."""
        if any(fnmatchcase(tool, pattern) for pattern in self.deny):
            return False
        return self.allow is None or any(fnmatchcase(tool, pattern) for pattern in self.allow)

    def asks(self, tool: str) -> bool:
        """Return whether a person must approve calls of the server's tool of that name."""
        if isinstance(self.approval, bool):
            return self.approval
        return any(fnmatchcase(tool, pattern) for pattern in self.approval)


def servers_from_json(path: Path) -> dict[str, ServerSettings]:
    """Return the servers of a JSON file, `{"mcpServers": {NAME: {...}}}`.

    `cwd` is relative to the file. Raises SetupError, naming the file.
    """
    try:
        read = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise SetupError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise SetupError(f"{path}: not valid JSON: {error}") from None
    given = read.get("mcpServers") if isinstance(read, dict) else None
    if not isinstance(given, dict):
        raise SetupError(f'{path}: the file must have the form {{"mcpServers": {{NAME: {{...}}}}}}')
    return read_servers(given, path)


def read_servers(given: Mapping[str, Any], path: Path) -> dict[str, ServerSettings]:
    """Return the checked servers of the configuration at `path`; raises SetupError."""
    servers: dict[str, ServerSettings] = {}
    for name, each in given.items():
        if not isinstance(each, dict):
            raise SetupError(f"{path}: [mcpServers.{name}] must be a table, got {given[name]!r}")
        try:
            server = ServerSettings.read(name, each)
        except SetupError as error:
            raise SetupError(f"{path}: {error}") from None
        if server.cwd is not None:
            server = server.model_copy(update={"cwd": path.parent / server.cwd.expanduser()})
        servers[name] = server
    return servers
