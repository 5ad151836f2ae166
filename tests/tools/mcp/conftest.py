"""MCP servers in processes of their own."""

import sys

import pytest

from caesura.tools.artifacts import ArtifactStore
from caesura.tools.mcp import MCPServer
from tests.tools.mcp.calls import HERE


@pytest.fixture
def real(tmp_path):
    """Makes an MCPServer on the library's own server, over stdio."""

    def make(**settings: object) -> MCPServer:
        return MCPServer(
            "real",
            command=sys.executable,
            args=[str(HERE / "server.py")],
            artifacts=ArtifactStore(tmp_path / "artifacts"),
            **settings,
        )

    return make


@pytest.fixture
def hostile(tmp_path):
    """Makes an MCPServer on the server that misbehaves."""

    def make(behaviour: str = "", **settings: object) -> MCPServer:
        return MCPServer(
            "hostile",
            command=sys.executable,
            args=["-S", "-E", str(HERE / "hostile.py"), behaviour],
            artifacts=ArtifactStore(tmp_path / "artifacts"),
            **settings,
        )

    return make
