"""The options of `caesura serve`, by what they are about."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from caesura.intercept.kv.handling import HANDLINGS
from caesura.runtime.audit import AuditLog
from caesura.runtime.cli.options import (
    DEFAULT_HOST_GIB,
    PAUSES,
    HostGib,
    ModelOptions,
    Traces,
    search_here,
)
from caesura.runtime.errors import UsageError, usage_errors
from caesura.runtime.journal.store import JournalStore, PostgresJournal, SqliteJournal
from caesura.runtime.server.http.access_log import AccessLogForm
from caesura.runtime.server.http.returning import checked_server
from caesura.runtime.server.http.sockets import SocketLimits
from caesura.runtime.server.keys.access import check_door
from caesura.runtime.server.keys.key import Key, keys_of, read_keys
from caesura.runtime.server.load.options import SHUTDOWN_SECONDS
from caesura.runtime.server.responses.store import PostgresResponses, ResponseStore, SqliteResponses
from caesura.scheduler.calibration import Calibration
from caesura.scheduler.paths import audit_path, journal_path, responses_path
from caesura.scheduler.policy.names import ADMISSIONS, RANKINGS
from caesura.scheduler.prompt_lengths.predictor import Description
from caesura.scheduler.settings import Settings
from caesura.stores.postgres import Database, Misconfigured, Unavailable, shown

DEFAULTS = Settings()
QUEUE = "Waiting requests"
"""A panel of `--help`."""


def _known(name: str) -> str:
    if name not in HANDLINGS:
        raise typer.BadParameter(f"unknown handling {name!r}; choose from: {', '.join(HANDLINGS)}")
    return name


def _named(name: str | None) -> str | None:
    try:
        return None if name is None else checked_server(name)
    except UsageError as error:
        raise typer.BadParameter(str(error)) from None


def _setting(name: str) -> Callable[[str | None], str | None]:
    def check(value: str | None) -> str | None:
        if value is None:
            return None
        search_here(value)
        try:
            Settings.from_mapping({name: chunk_of(value) if name == "chunk" else value})
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
        return value

    return check


def chunk_of(value: str) -> int | str:
    """Return the value of `--chunk`: a number of tokens, or a word."""
    return int(value) if value.isdecimal() else value


@dataclass(frozen=True, slots=True)
class DoorOptions:
    """The server's address, its access checks, and its model's name."""

    served_model_name: Annotated[
        list[str] | None,
        typer.Option(help="The model's name for clients, repeatable. Default: from --model."),
    ] = None
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 8000
    api_key: Annotated[
        list[str] | None,
        typer.Option(
            envvar=["CAESURA_API_KEY", "VLLM_API_KEY"],
            help="Key that clients must send, repeatable. `ps` shows it: better use the"
            " environment or --api-key-file.",
        ),
    ] = None
    api_key_file: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="A file of keys, one in a line; # begins a comment. Behind a key, `name=ann` names"
            " it, `rpm=60`, `tpm=10000` and `in_flight=8` bound its requests and tokens in a minute"
            " and its requests at once, and `weight=3` gives it three shares with --fair tenant."
            " `role=client` (the default where there are several keys) lets it use its own records"
            " only, `view` also read the page, traces and metrics, `approve` also decide about"
            " everybody's calls, and `admin` do everything, as a single key does.",
        ),
    ] = None
    shared_prefix_cache: Annotated[
        bool,
        typer.Option(
            help="Let clients with different keys share the prefix cache, so that each can find out"
            " what others have sent."
        ),
    ] = False
    allowed_origin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN",
            help="A web page's origin, such as https://app.example.com, that may use this server"
            " from a browser (CORS), repeatable. `*`, all pages, needs a key.",
        ),
    ] = None
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allowed-host",
            metavar="NAME",
            help="Without a key: another name of this server in requests, repeatable. "
            "IP addresses, localhost and --host are always allowed.",
        ),
    ] = None
    server_name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            envvar="CAESURA_SERVER_NAME",
            callback=_named,
            help="One of several servers: its name, in the header Caesura-Server of every answer.",
        ),
    ] = None
    max_concurrent: Annotated[
        int, typer.Option(help="The most requests in flight; more get a 429.")
    ] = 1024
    max_queue_seconds: Annotated[
        float,
        typer.Option(
            min=0,
            help="Answer 429 to requests that would wait longer for the engine, as predicted from"
            " what waits already; 0 means never.",
        ),
    ] = 0.0
    access_log: Annotated[
        AccessLogForm,
        typer.Option(
            metavar="text|json|off",
            help="A line on stderr for each request: method, path, status, seconds, the key's name,"
            " X-Request-Id and the id of the answer. It holds no contents.",
        ),
    ] = "text"
    no_what_if: Annotated[
        bool,
        typer.Option(help="Offer no replays of recordings on the page."),
    ] = False

    def keys(self) -> list[Key] | None:
        """Return the keys of the options and of the file, or None if no key was asked for.

        Raises `UsageError` for a file that cannot be read, that holds no key, or a wrong setting.
        """
        listed = [Key(each) for each in self.api_key or ()]
        listed += [] if self.api_key_file is None else read_keys(self.api_key_file)
        return keys_of(listed or None)

    def checked_keys(self) -> list[Key] | None:
        """Return the keys; raise `UsageError` for wrong names of the server or of pages too."""
        keys = self.keys()
        check_door(keys, self.allowed_host or (), self.allowed_origin or ())
        return keys


@dataclass(frozen=True, slots=True)
class Scheduling:
    """The handling of paused and waiting requests."""

    panel: ClassVar = PAUSES

    handling: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            callback=_known,
            help=f"The policy for the KV cache of paused requests: {', '.join(HANDLINGS)}.",
        ),
    ] = DEFAULTS.handling
    host_gib: HostGib = DEFAULT_HOST_GIB
    calibration: Annotated[
        Path | None,
        typer.Option(
            help="A file of `caesura calibrate`. Default: the one in the cache, made if missing."
        ),
    ] = None
    no_calibrate: Annotated[
        bool,
        typer.Option(
            help="Do not measure at the start; begin with a guess, and learn while serving."
        ),
    ] = False
    records: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False,
            writable=True,
            help="Append the scheduler's records to this file, as JSON lines.",
        ),
    ] = None
    pause_deadline: Annotated[
        float,
        typer.Option(
            min=0, help="Seconds of a pause after which its KV is discarded; 0 means never."
        ),
    ] = DEFAULTS.pause_deadline
    retention: Annotated[
        float,
        typer.Option(
            min=0,
            help="Seconds that KV is kept for the follow-up of a request that ended at a call.",
        ),
    ] = DEFAULTS.retention
    no_splice: Annotated[
        bool,
        typer.Option(
            help="Render the whole history of a follow-up, instead of continuing from the tokens"
            " of the answer before it."
        ),
    ] = False
    ranking: Annotated[
        str,
        typer.Option(
            metavar="NAME[:KEY=VALUE,...]",
            callback=_setting("ranking"),
            help=f"The order in which waiting requests are admitted: {', '.join(RANKINGS)}.",
            rich_help_panel=QUEUE,
        ),
    ] = DEFAULTS.ranking
    admission: Annotated[
        str,
        typer.Option(
            metavar="NAME[:KEY=VALUE,...]",
            callback=_setting("admission"),
            help=f"The policy that delays requests despite free blocks: {', '.join(ADMISSIONS)}.",
            rich_help_panel=QUEUE,
        ),
    ] = DEFAULTS.admission
    length_predictor: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="A predictor of `caesura predict train`, which predicts the length of a session's"
            " first output from its prompt, in a process of its own.",
            rich_help_panel=QUEUE,
        ),
    ] = None
    slo: Annotated[
        str | None,
        typer.Option(
            metavar="ttft=SECONDS,tpot=SECONDS",
            callback=_setting("slo"),
            help="An objective: seconds to the first token of a request, and behind each of its"
            " tools, and seconds per token after it. Requests that can still meet it go first.",
            rich_help_panel=QUEUE,
        ),
    ] = None
    fair: Annotated[
        str,
        typer.Option(
            metavar="off|tenant",
            callback=_setting("fair"),
            help="`tenant`: clients with different API keys share the engine by virtual time, so"
            " that none can push out the others.",
            rich_help_panel=QUEUE,
        ),
    ] = DEFAULTS.fair
    chunk: Annotated[
        str,
        typer.Option(
            metavar="TOKENS",
            callback=_setting("chunk"),
            help="The most query tokens of a step beside decodes; `auto` uses the calibration,"
            " `vllm` vLLM's own setting.",
            rich_help_panel=QUEUE,
        ),
    ] = str(DEFAULTS.chunk)

    def check(self) -> None:
        """Raise `UsageError` for invalid options, before an engine starts."""
        if self.calibration is not None:
            Calibration.load(self.calibration)
        if self.length_predictor is not None:
            Description.read(self.length_predictor)
        if self.records is not None and not self.records.absolute().parent.is_dir():
            raise UsageError(
                f"there is no directory {self.records.absolute().parent} for --records: create it,"
                " or choose another file"
            )

    @property
    def settings(self) -> dict[str, Any]:
        """The argument `settings` of `start_engine`."""
        settings: dict[str, Any] = {
            "handling": self.handling,
            "pause_deadline": self.pause_deadline,
            "retention": self.retention,
            "ranking": self.ranking,
            "admission": self.admission,
            "fair": self.fair,
            "chunk": chunk_of(self.chunk),
        }
        if self.slo is not None:
            settings["slo"] = self.slo
        if self.length_predictor is not None:
            settings["length_predictor"] = str(self.length_predictor.absolute())
        if self.calibration is not None:
            settings["calibration"] = str(self.calibration.absolute())
        return settings

    @property
    def about(self) -> dict[str, Any]:
        """What a recording holds beside what the engine tells of itself."""
        return {"splice": not self.no_splice}

    @property
    def connector(self) -> dict[str, Any]:
        """The argument `connector` of `start_engine`."""
        connector: dict[str, Any] = {"host_gib": self.host_gib}
        if self.records is not None:
            connector["records"] = str(self.records.absolute())
        return connector


CONNECTIONS = "Connections"
"""A panel of `--help`."""
SOCKETS = SocketLimits()


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """How many connections there may be, and how long each may keep the server waiting."""

    panel: ClassVar = CONNECTIONS

    header_seconds: Annotated[
        float, typer.Option(min=0.1, help="Seconds for the headers of a request.")
    ] = SOCKETS.header_seconds
    body_seconds: Annotated[
        float,
        typer.Option(
            min=0.1, help="Seconds for the body of a request, and 1 more for every 16 KiB of it."
        ),
    ] = SOCKETS.body_seconds
    idle_seconds: Annotated[
        int, typer.Option(min=1, help="Seconds that a connection stays open between requests.")
    ] = SOCKETS.idle_seconds
    write_seconds: Annotated[
        float,
        typer.Option(
            min=0.1,
            help="Seconds in which a client must read some of its answer; else its run ends.",
        ),
    ] = SOCKETS.write_seconds
    max_connections: Annotated[
        int, typer.Option(min=1, help="The most open connections; `ulimit -n` may allow fewer.")
    ] = SOCKETS.max_connections
    max_connections_per_address: Annotated[
        int,
        typer.Option(
            min=1, help="The most open connections of one address, such as that of a proxy."
        ),
    ] = SOCKETS.max_connections_per_address

    @property
    def limits(self) -> SocketLimits:
        """The bounds for the server."""
        return SocketLimits(**asdict(self))


AUDIT = "Audit"
"""A panel of `--help`."""


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """Where calls and decisions are noted, and with how much of them."""

    panel: ClassVar = AUDIT

    audit: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False,
            metavar="FILE",
            help="Note calls of tools, questions to people and their decisions in this file, as"
            " JSON lines. Default, where there are tools: in the user's state directory.",
        ),
    ] = None
    audit_content: Annotated[
        bool, typer.Option(help="Note arguments and answers too, instead of their digests.")
    ] = False
    no_audit: Annotated[bool, typer.Option(help="Keep no audit log.")] = False

    def log(self, has_tools: bool) -> AuditLog | None:
        """Return the log, or None if none is wanted. Raises `UsageError`."""
        if self.no_audit:
            if self.audit is not None:
                raise UsageError(f"--audit {self.audit} and --no-audit exclude each other")
            return None
        if self.audit is None and not has_tools:
            return None
        return AuditLog(self.audit or audit_path(), content=self.audit_content)


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """What is kept: in files, in a database, or in memory."""

    responses: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False,
            help="The file of stored responses and conversations. "
            "Default: in the user's state directory.",
        ),
    ] = None
    no_responses: Annotated[
        bool,
        typer.Option(
            help="Keep stored responses and conversations in memory only, until the server ends."
        ),
    ] = False
    journal: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False,
            help="The file of the runs under way, which go on from it after a restart. "
            "Default: in the user's state directory.",
        ),
    ] = None
    no_journal: Annotated[
        bool,
        typer.Option(
            help="Write no runs down: those under way are lost when the server ends or dies."
        ),
    ] = False

    trajectories: Annotated[
        bool,
        typer.Option(
            help="Keep the tokens of sessions in memory, for training: GET"
            " /v1/sessions/ID/trajectories. caesura.toml bounds them in [trajectories]."
        ),
    ] = False

    shared: Annotated[
        str | None,
        typer.Option(
            "--store",
            metavar="postgresql://USER@HOST/DATABASE",
            envvar="CAESURA_STORE",
            show_envvar=True,
            help="Keep responses and runs in PostgreSQL instead, which several servers may share. "
            "`ps` shows it: better use the environment.",
        ),
    ] = None

    def check(self) -> None:
        """Raise `UsageError` for options that contradict each other, and for an unusable database.

        Call it before an engine starts.
        """
        if self.shared is None:
            return
        if self.responses or self.no_responses or self.journal:
            raise UsageError(
                f"--store keeps responses and runs in {shown(self.shared)}: omit --responses,"
                " --no-responses and --journal"
            )
        try:
            with usage_errors(Misconfigured):
                Database(self.shared, ()).check()
        except Unavailable as error:
            raise UsageError(f"{error}; correct --store or CAESURA_STORE") from error

    def store(self) -> ResponseStore:
        """Return the store of responses and conversations."""
        if self.shared is not None:
            return PostgresResponses(self.shared)
        return SqliteResponses(None if self.no_responses else self.responses or responses_path())

    def journal_store(self) -> JournalStore | None:
        """Return the store of journals, or None if no runs are to be written down.

        Runs whose responses are kept in memory only are not written down either.
        """
        if self.shared is not None and not self.no_journal:
            return PostgresJournal(self.shared)
        if self.no_journal or (self.no_responses and self.journal is None):
            return None
        return SqliteJournal(self.journal or journal_path())


LIFETIME = "Death and shutdown"
"""A panel of `--help`."""
ENGINE_TIMEOUT_SECONDS = 120.0
"""Longer than any step: the engine answers between two steps."""
DRAIN_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class LifetimeOptions:
    """Restarts of the engine, and the end of the server."""

    panel: ClassVar = LIFETIME

    no_restart: Annotated[
        bool,
        typer.Option(
            help="End with exit code 3 when the engine dies, instead of starting it again."
        ),
    ] = False
    engine_timeout: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="An engine whose process does not answer for so long is hung: it is killed and "
            "started again. 0 asks nothing.",
        ),
    ] = ENGINE_TIMEOUT_SECONDS
    drain_delay: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="After SIGTERM the port stays open for so long, so that balancers notice that "
            "/ready says 503.",
        ),
    ] = DRAIN_SECONDS
    shutdown_timeout: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="How long requests under way may take to finish when the server ends.",
        ),
    ] = SHUTDOWN_SECONDS


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """All options of `caesura serve`."""

    source: ModelOptions
    door: DoorOptions
    connections: ConnectionOptions
    audits: AuditOptions
    stores: StoreOptions
    lifetime: LifetimeOptions
    paused: Scheduling
    traces: Traces

    def check(self) -> None:
        """Raise `UsageError` for invalid options, before an engine starts."""
        self.paused.check()
        self.traces.check()
        self.stores.check()
