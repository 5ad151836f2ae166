"""The endpoint runs the tools of an MCP server, as they are when a request comes."""

import sys
from pathlib import Path

import aiohttp

from caesura.runtime.server import create_app
from caesura.runtime.server.listen import listening
from caesura.runtime.testing import ScriptedEngine, call, say
from caesura.tools.artifacts import ArtifactStore
from caesura.tools.config.toolset import Toolset
from caesura.tools.mcp import MCPServer
from caesura.tools.services import Services
from tests.kit.waiting import until

HOSTILE = Path(__file__).parents[2] / "tools" / "mcp" / "hostile.py"


async def test_a_servers_tools_are_run_in_the_request(tmp_path):
    def script(messages, tools):
        results = [each["content"] for each in messages if each["role"] == "tool"]
        return say(results[-1]) if results else call(tools[0]["function"]["name"], tool="late")

    server = MCPServer("odd", command=sys.executable, args=["-S", "-E", str(HOSTILE)])
    services = Services(ArtifactStore(tmp_path), tmp_path)
    engine = ScriptedEngine(script, model="m")
    async with engine, Toolset(services, sources=[server]) as toolset:
        app = create_app(engine, toolset.registry)
        async with (
            listening(app) as port,
            aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client,
        ):

            async def ask(tool: str):
                body = {
                    "model": "m",
                    "messages": [{"role": "user", "content": "Go."}],
                    "server_tools": [tool],
                }
                async with client.post("/v1/chat/completions", json=body) as response:
                    answer = await response.json()
                if response.status != 200:
                    return answer["error"]["message"]
                return answer["choices"][0]["message"]["content"]

            assert await ask("fine") == "fine"
            assert "unknown tool 'late'" in await ask("late")
            assert await ask("learn") == "ok"
            await until(lambda: "late" in toolset.registry, bool)
            assert await ask("late") == "fine"
            assert "out of ideas" in await ask("exits")
