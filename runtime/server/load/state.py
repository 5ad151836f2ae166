"""The state that the handlers of one application share."""

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from caesura.runtime.engine import Engine, EngineSession
from caesura.runtime.journal.writer import JournalWriter
from caesura.runtime.run.limits import Limits
from caesura.runtime.run.media import MediaFetcher
from caesura.runtime.run.served_agent import Agents
from caesura.runtime.server.keys.access import Door
from caesura.runtime.server.keys.auditing import Auditing
from caesura.runtime.server.keys.sender import Sender
from caesura.runtime.server.load.diagnosis import Diagnoses
from caesura.runtime.server.load.gate import Gate
from caesura.runtime.server.load.metrics import Metrics
from caesura.runtime.server.load.options import ServerOptions
from caesura.runtime.supervision import Readiness, Runs
from caesura.runtime.tracing.who import Who, user_of
from caesura.runtime.trajectories.kept import KeptSessions
from caesura.runtime.trajectories.recorded import RecordedLog, RecordedSession
from caesura.runtime.whatif.replays import Replays
from caesura.scheduler.messages import SessionSpec
from caesura.scheduler.session_log import SessionLog
from caesura.tools.people import People
from caesura.tools.registry import Registry

if TYPE_CHECKING:
    from caesura.runtime.tracing.tracing import Tracing


@dataclass(frozen=True, slots=True)
class State:
    """The engine, the tools, and the application's settings and counters."""

    engine: Engine
    tools: Registry
    options: ServerOptions
    limits: Limits
    """Those of the options, within what the engine can answer."""
    metrics: Metrics
    gate: Gate
    media: MediaFetcher
    door: Door
    agents: Agents = field(default_factory=dict)
    """The agents that requests may name as their model."""
    people: People | None = None
    tracing: "Tracing | None" = None
    replays: Replays | None = None
    journal: JournalWriter | None = None
    readiness: Readiness | None = None
    """Whether the engine and the server take work; None where nobody supervises the engine."""
    audit: Auditing | None = None
    sessions: KeptSessions | None = None
    """The sessions whose trajectories are kept; None: none are."""
    runs: Runs = field(default_factory=Runs)
    diagnoses: Diagnoses = field(default_factory=Diagnoses)
    """The prompts of recent answers, with which later ones are compared."""
    started_at: int = field(default_factory=lambda: int(time.time()))

    def opened(
        self, spec: SessionSpec, answer: str, journal: SessionLog | None = None
    ) -> EngineSession:
        """Open a session of the engine for an answer, whose trajectory is kept if any are."""
        if self.sessions is None:
            return self.engine.open(spec, journal)
        kept = self.sessions.of_run(spec.origin, answer)
        model = spec.adapter or self.engine.model
        log = RecordedLog(kept.recorder, answer, model, journal)
        return RecordedSession(self.engine.open(spec, log), log)

    def who(self, sender: Sender, user: str | None, answer: str = "") -> Who:
        """Return who asks, as the spans of its run tell it.

        `user` is what the request names. A session without a name of its own goes by the id of its
        `answer`, which is no name.
        """
        origin = sender.origin
        named = user_of(user, self.options.users)
        tenant = self.door.tenant_name(sender.tenant)
        session = "" if origin.session == answer else origin.session
        owner = f"{sender.owner} {user or ''}"
        return Who(tenant, named, session, origin.parent, sender.request_id, owner)
