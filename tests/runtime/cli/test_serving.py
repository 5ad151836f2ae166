"""What `caesura serve` says when it starts."""

from caesura.runtime.cli.serve.serve import tools_line
from caesura.tools import tool
from caesura.tools.registry import Registry


@tool(approval=True)
async def pay(euros: int) -> str:
    """Pay."""
    return str(euros)


@tool
async def look() -> str:
    """Look."""
    return "seen"


def test_the_tools_that_a_client_may_name_are_told():
    line = tools_line(Registry([pay, look]))
    assert line.endswith(": pay (after approval), look")
    assert tools_line(Registry()) == "no server tools"
