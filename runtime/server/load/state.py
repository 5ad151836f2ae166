"""The state that the handlers of one application share."""

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from caesura.runtime.engine import Engine
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
from caesura.runtime.whatif.replays import Replays
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
    runs: Runs = field(default_factory=Runs)
    diagnoses: Diagnoses = field(default_factory=Diagnoses)
    """The prompts of recent answers, with which later ones are compared."""
    started_at: int = field(default_factory=lambda: int(time.time()))

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
