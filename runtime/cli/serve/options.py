"""The options of `caesura serve`."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from caesura.intercept.kv.handling import HANDLINGS
from caesura.runtime.cli.options import DEFAULT_HOST_GIB, PAUSES, HostGib
from caesura.runtime.errors import UsageError
from caesura.scheduler.admission import ADMISSIONS
from caesura.scheduler.calibration import Calibration
from caesura.scheduler.rank import RANKINGS
from caesura.scheduler.settings import Settings

DEFAULTS = Settings()
QUEUE = "Waiting requests"
"""A panel of `--help`."""


def _known(name: str) -> str:
    if name not in HANDLINGS:
        raise typer.BadParameter(f"there is no {name!r}, but {', '.join(HANDLINGS)}")
    return name


def _setting(name: str) -> Callable[[str], str]:
    def check(value: str) -> str:
        try:
            Settings.from_mapping({name: chunk_of(value) if name == "chunk" else value})
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
        return value

    return check


def chunk_of(value: str) -> int | str:
    """Read `--chunk`: a number of tokens, or a word."""
    return int(value) if value.isdecimal() else value


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Where the server listens, whom it lets in, and what its model is called."""

    served_model_name: Annotated[
        str | None, typer.Option(help="The model's name for clients. Default: from --model.")
    ] = None
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 8000
    api_key: Annotated[
        str | None, typer.Option(envvar="CAESURA_API_KEY", help="Key that clients must send.")
    ] = None
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allowed-host",
            metavar="NAME",
            help="Without a key: a further name of this server in requests, repeatable. "
            "IP addresses, localhost and --host need no mention.",
        ),
    ] = None
    max_concurrent: Annotated[int, typer.Option(help="Requests in flight before a 429.")] = 1024


@dataclass(frozen=True, slots=True)
class Scheduling:
    """What becomes of paused and waiting requests."""

    handling: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            callback=_known,
            help=f"What becomes of their KV cache: {', '.join(HANDLINGS)}.",
            rich_help_panel=PAUSES,
        ),
    ] = DEFAULTS.handling
    host_gib: HostGib = DEFAULT_HOST_GIB
    calibration: Annotated[
        Path | None,
        typer.Option(
            "--calibration",
            help="What `caesura calibrate` wrote. Default: the one in the cache, made if need be.",
            rich_help_panel=PAUSES,
        ),
    ] = None
    no_calibrate: Annotated[
        bool,
        typer.Option(
            "--no-calibrate",
            help="Never measure at the start: begin with a guess, and learn.",
            rich_help_panel=PAUSES,
        ),
    ] = False
    records: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False,
            writable=True,
            help="Append the scheduler's records to this file, as JSON lines.",
            rich_help_panel=PAUSES,
        ),
    ] = None
    pause_deadline: Annotated[
        float,
        typer.Option(
            min=0, help="Seconds until KV is given up for good; 0 is never.", rich_help_panel=PAUSES
        ),
    ] = DEFAULTS.pause_deadline
    retention: Annotated[
        float,
        typer.Option(
            min=0,
            help="Seconds that KV is kept for the follow-up of a request that ended with calls.",
            rich_help_panel=PAUSES,
        ),
    ] = DEFAULTS.retention
    ranking: Annotated[
        str,
        typer.Option(
            metavar="NAME[:KEY=VALUE,...]",
            callback=_setting("ranking"),
            help=f"The order in which they are tried: {', '.join(RANKINGS)}.",
            rich_help_panel=QUEUE,
        ),
    ] = DEFAULTS.ranking
    admission: Annotated[
        str,
        typer.Option(
            metavar="NAME[:KEY=VALUE,...]",
            callback=_setting("admission"),
            help=f"What keeps them waiting although blocks are free: {', '.join(ADMISSIONS)}.",
            rich_help_panel=QUEUE,
        ),
    ] = DEFAULTS.admission
    chunk: Annotated[
        str,
        typer.Option(
            metavar="TOKENS",
            callback=_setting("chunk"),
            help="Most query tokens of a step beside decodes; `auto` goes by the calibration,"
            " `vllm` by vLLM's own setting.",
            rich_help_panel=QUEUE,
        ),
    ] = str(DEFAULTS.chunk)

    def check(self) -> None:
        """Find mistakes that do not take an engine to find; raises `UsageError`."""
        if self.calibration is not None:
            Calibration.load(self.calibration)
        if self.records is not None and not self.records.absolute().parent.is_dir():
            raise UsageError(f"there is no directory {self.records.absolute().parent}")

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of `start_engine`."""
        settings: dict[str, Any] = {
            "handling": self.handling,
            "pause_deadline": self.pause_deadline,
            "retention": self.retention,
            "ranking": self.ranking,
            "admission": self.admission,
            "chunk": chunk_of(self.chunk),
        }
        if self.calibration is not None:
            settings["calibration"] = str(self.calibration.absolute())
        return settings

    @property
    def about(self) -> dict[str, Any]:
        """What a recording tells of them."""
        names = ("handling", "ranking", "admission", "chunk", "pause_deadline", "retention")
        return {name: self.settings[name] for name in names}

    @property
    def connector(self) -> dict[str, Any]:
        """What our KV connector is told."""
        connector: dict[str, Any] = {"host_gib": self.host_gib}
        if self.records is not None:
            connector["records"] = str(self.records.absolute())
        return connector
