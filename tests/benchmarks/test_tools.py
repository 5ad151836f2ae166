"""The measurements of tools run, and their tables have all rows."""

from rich.console import Console

from benchmarks import tools, tools_streaming


async def test_the_overhead_is_measured_for_every_case() -> None:
    table = await tools.measure(4, 3, Console(quiet=True))
    assert table.row_count == 5


async def test_a_stream_is_measured_beside_every_kind_of_tool() -> None:
    table = await tools_streaming.measure(1, 40, tools_streaming.KINDS, Console(quiet=True))
    assert table.row_count == 3
