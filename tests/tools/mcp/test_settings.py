"""What a configuration may say of a server."""

import json

import pytest

from caesura.tools.mcp import MCPServer, ServerSettings, servers_from_json
from caesura.tools.services import SetupError


def test_the_customary_shape(tmp_path):
    path = tmp_path / "mcp.json"
    servers = {
        "files": {"command": "npx", "args": ["-y", "server", "."], "env": {"A": "b"}, "cwd": "in"},
        "web": {"type": "http", "url": "https://example.com/mcp", "headers": {"X": "y"}},
    }
    path.write_text(json.dumps({"mcpServers": servers}))
    read = servers_from_json(path)
    assert read["files"].args == ("-y", "server", ".")
    assert read["files"].cwd == tmp_path / "in"
    assert read["web"].headers == {"X": "y"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "set either command (stdio) or url (streamable HTTP)"),
        ({"command": "x", "url": "http://a"}, "set either command"),
        ({"comand": "x"}, "unknown key 'comand'; did you mean 'command'?"),
        ({"command": "x", "headers": {"a": "b"}}, "headers is only for a server with url"),
        ({"url": "http://a", "args": ["b"]}, "args is only for a server with command"),
        ({"url": "ftp://a"}, "url: "),
        ({"type": "sse", "url": "http://a"}, "SSE transport is not supported"),
        ({"command": "x", "timeout_seconds": 0}, "timeout_seconds: input should be greater than 0"),
        ({"command": "x", "args": "y"}, "args: "),
    ],
)
def test_mistakes_are_named(given, said):
    with pytest.raises(SetupError) as raised:
        ServerSettings.read("files", given)
    assert str(raised.value).startswith("[mcpServers.files]: ")
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_variables():
    given = {"url": "https://${HOST}/", "headers": {"a": "${KEY} ${NO:-none} $KEY ${NO:-}"}}
    settings = ServerSettings.read("web", given).resolved("web", {"HOST": "h", "KEY": "k"})
    assert settings.url == "https://h/"
    assert settings.headers == {"a": "k none $KEY "}


def test_a_variable_that_is_not_set(monkeypatch):
    monkeypatch.delenv("ABSENT", raising=False)
    with pytest.raises(SetupError, match="the environment variable ABSENT is not set"):
        MCPServer("web", url="https://example.com", headers={"key": "${ABSENT}"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not valid JSON"),
        ("[]", "must have the form"),
        ('{"mcpServers": {"a": 3}}', "[mcpServers.a] must be a table, got 3"),
        ('{"mcpServers": {"a": {}}}', "[mcpServers.a]: set either command"),
    ],
)
def test_a_bad_file_is_named(tmp_path, text, said):
    path = tmp_path / "mcp.json"
    path.write_text(text)
    with pytest.raises(SetupError) as raised:
        servers_from_json(path)
    assert str(raised.value).startswith(f"{path}: ")
    assert said in str(raised.value)


def test_no_file(tmp_path):
    with pytest.raises(SetupError, match="cannot be read: No such file"):
        servers_from_json(tmp_path / "no.json")
