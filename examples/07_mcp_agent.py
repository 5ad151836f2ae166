"""An agent that uses the tools of an MCP server, which is this very file, started over stdio.

    python examples/07_mcp_agent.py            # a script stands in for the model
    python examples/07_mcp_agent.py MODEL      # a Hugging Face id, or a directory

Needs `pip install -e '.[mcp]'`. The server keeps a shop's stock in memory; it is a process of
its own, and ends with the agent.
"""

import asyncio
import sys
from collections.abc import Sequence

from caesura.runtime.sdk.agent import Agent
from caesura.runtime.testing import Item, ScriptedEngine, call, say
from caesura.scheduler.messages import Message, ToolSpec
from caesura.tools.mcp import MCPServer

QUESTION = "How many lamps are in stock? Take three of them out."


def serve() -> None:
    """Be the server: stdin and stdout belong to the protocol."""
    from mcp.server.mcpserver import MCPServer as Server
    from mcp.server.mcpserver.exceptions import ToolError

    stock = {"lamp": 7, "chair": 4}
    server = Server("shop")

    @server.tool()
    def count(item: str) -> int:
        """Tell how many of an item are in stock."""
        return stock.get(item, 0)

    @server.tool()
    def take(item: str, number: int) -> str:
        """Take items out of the stock."""
        if stock.get(item, 0) < number:
            raise ToolError(f"there are only {stock.get(item, 0)} of {item}")
        stock[item] -= number
        return f"{stock[item]} left"

    server.run("stdio")


def scripted(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Item:
    """Play the model: ask, take, and tell what the results say."""
    results = [message["content"] for message in messages if message["role"] == "tool"]
    match len(results):
        case 0:
            return call("count", item="lamp")
        case 1:
            return call("take", item="lamp", number=3)
        case _:
            return say(f"There were {results[0]} lamps; now {results[1]}.")


async def main(model: str | None) -> None:
    """Ask, with the server's tools and a built-in one, and print every call."""
    engine = ScriptedEngine(scripted) if model is None else model
    shop = MCPServer("shop", command=sys.executable, args=[__file__, "serve"], timeout_seconds=10)
    async with Agent(engine, tools=[shop, "calculator"]) as agent:
        answer = await agent.run(QUESTION)
        print(f"tools: {', '.join(tool.name for tool in agent.tools)}")
        for made, result in answer.calls:
            print(f"{made.name} {made.arguments} -> {result.content}")
        print(answer)


if __name__ == "__main__":
    argument = sys.argv[1] if len(sys.argv) > 1 else None
    if argument == "serve":
        serve()
    else:
        asyncio.run(main(argument))
