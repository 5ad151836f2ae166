"""`caesura run` in a process of its own, on stand-ins of engines: `run_apart.py FOLDER`."""

import sys
from pathlib import Path

import typer

from caesura.planning.run.processes import CpuDevices, ProcessHost
from caesura.runtime.cli.errors import mistakes_told
from caesura.runtime.cli.plan.options import PlanOptions
from caesura.runtime.cli.plan.run import RunOptions, run_application
from tests.planning.run.apart import command
from tests.runtime.cli.made_up import MadeUpCosts

FILE = Path(__file__)


def main(folder: Path) -> None:
    async def host(devices: int, logs: Path) -> ProcessHost:
        return ProcessHost(CpuDevices(devices), logs, command=command(folder))

    with mistakes_told():
        run_application(
            folder / "app.toml",
            PlanOptions(devices=1, draws=1),
            RunOptions(folder / "out.jsonl"),
            costs=MadeUpCosts,
            make_host=host,
        )


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except typer.Exit as ended:
        sys.exit(ended.exit_code)
