"""What a configuration says of an MCP server, in the customary `mcpServers` shape and ours."""

import json
import os
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from caesura.tools.config.env_vars import with_variables
from caesura.tools.schema.settings_errors import settings_sentence
from caesura.tools.services import SetupError


class ServerSettings(BaseModel):
    """One server: `command` (stdio) or `url` (streamable HTTP), and how its tools are used."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    command: str | None = Field(None, min_length=1, description="the program to start, for stdio")
    args: tuple[str, ...] = Field((), description="its arguments")
    env: dict[str, str] = Field({}, description="added to its minimal environment")
    cwd: Path | None = Field(None, description="the directory that it is started in")
    url: str | None = Field(
        None, pattern=r"(?i)^https?://", description="the endpoint, for streamable HTTP"
    )
    headers: dict[str, str] = Field({}, description="sent with each HTTP request")
    type: Literal["stdio", "http", "streamable-http", "streamable_http"] | None = Field(
        None, description="said by some configurations; command or url decide"
    )
    disabled: bool = Field(False, description="leave it out")
    required: bool = Field(False, description="do not start without it")
    prefix: bool = Field(False, description="call its tools server_tool, not only on collision")
    allow: tuple[str, ...] | None = Field(None, description="its tools to use; * is a wild card")
    deny: tuple[str, ...] = Field((), description="its tools not to use; * is a wild card")
    approval: bool | tuple[str, ...] = Field(
        False, description="a person has to agree to each call, or to calls of these tools"
    )
    start_seconds: float = Field(30.0, gt=0, description="the longest that starting may take")
    timeout_seconds: float | None = Field(60.0, gt=0, description="the longest a call may take")
    concurrency: int | None = Field(None, ge=1, description="calls of one tool at a time")
    max_result_tokens: int | None = Field(None, ge=1, description="a longer result is cut")
    breaker: int | None = Field(None, ge=1, description="failures in a row until a tool rests")
    max_message_bytes: int = Field(
        8 * 2**20, ge=1024, description="a longer message of the server's is an error"
    )
    restarts: int = Field(10, ge=0, description="new connections in a row that may fail")

    @model_validator(mode="after")
    def _one_transport(self) -> "ServerSettings":
        if (self.command is None) == (self.url is None):
            raise ValueError("needs command (stdio) or url (streamable HTTP), and not both")
        misplaced = ("args", "env", "cwd") if self.url else ("headers",)
        for name in misplaced:
            if name in self.model_fields_set:
                raise ValueError(f"{name} goes with {'command' if self.url else 'url'}")
        return self

    @classmethod
    def read(cls, name: str, given: Mapping[str, Any]) -> "ServerSettings":
        """Check what is given; raises SetupError, naming the server and the key."""
        if given.get("type") == "sse":
            raise SetupError(
                f"[mcpServers.{name}]: the SSE transport is no more: use the server's "
                "streamable HTTP endpoint"
            )
        try:
            return cls.model_validate(dict(given))
        except ValidationError as error:
            raise SetupError(f"[mcpServers.{name}]: {settings_sentence(error, cls)}") from None

    def resolved(self, name: str, environment: Mapping[str, str] | None = None) -> "ServerSettings":
        """The settings with `${VARIABLE}` and `${VARIABLE:-default}` filled in.

        In args, env, url and headers. Raises SetupError for a variable that is not set.
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
        """Whether the server's tool of that name is to be used."""
        if any(fnmatchcase(tool, pattern) for pattern in self.deny):
            return False
        return self.allow is None or any(fnmatchcase(tool, pattern) for pattern in self.allow)

    def asks(self, tool: str) -> bool:
        """Whether a person has to agree to calls of the server's tool of that name."""
        if isinstance(self.approval, bool):
            return self.approval
        return any(fnmatchcase(tool, pattern) for pattern in self.approval)


def servers_from_json(path: Path) -> dict[str, ServerSettings]:
    """The servers of a JSON file, `{"mcpServers": {NAME: {...}}}`; `cwd` is relative to the file.

    Raises SetupError, naming the file.
    """
    try:
        read = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise SetupError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise SetupError(f"{path}: not valid JSON: {error}") from None
    given = read.get("mcpServers") if isinstance(read, dict) else None
    if not isinstance(given, dict):
        raise SetupError(f'{path}: {{"mcpServers": {{NAME: {{...}}}}}} is expected')
    return read_servers(given, path)


def read_servers(given: Mapping[str, Any], path: Path) -> dict[str, ServerSettings]:
    """Check the servers of a configuration file at `path`; raises SetupError, naming the file."""
    servers: dict[str, ServerSettings] = {}
    for name, each in given.items():
        if not isinstance(each, dict):
            raise SetupError(f"{path}: [mcpServers.{name}]: a table is expected")
        try:
            server = ServerSettings.read(name, each)
        except SetupError as error:
            raise SetupError(f"{path}: {error}") from None
        if server.cwd is not None:
            server = server.model_copy(update={"cwd": path.parent / server.cwd.expanduser()})
        servers[name] = server
    return servers
