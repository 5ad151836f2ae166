"""Who sent a request, as the journal keeps it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from caesura.runtime.server.chat.plan import Plan
from caesura.runtime.server.decoding import owned
from caesura.runtime.server.request.asker import asker_of
from caesura.scheduler.admission.programs import Origin


@dataclass(frozen=True, slots=True)
class Sender:
    """Who sent a request, as digests, and where it comes from. Keys are never kept."""

    asker: str
    """For questions to people."""
    owner: str
    """For continuing from the tokens of an answer."""
    origin: Origin

    @classmethod
    def of(cls, plan: Plan, headers: Mapping[str, str], name: str) -> "Sender":
        """Return the sender of a request; `name` is the session's. Raises `ApiError`."""
        named = owned(plan, headers, name)
        return cls(asker_of(plan.user, headers), named.spec.asker, named.spec.origin)

    def of_plan(self, plan: Plan) -> Plan:
        """Return the plan with this sender."""
        spec = replace(plan.spec, asker=self.owner, origin=self.origin)
        return replace(plan, spec=spec, asker=self.asker)

    def told(self) -> dict[str, Any]:
        """Return the sender for the journal."""
        return asdict(self)

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> "Sender":
        """Return the sender that a journal tells of."""
        return cls(str(told["asker"]), str(told["owner"]), Origin(**told["origin"]))
