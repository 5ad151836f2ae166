"""Ray Serve's choice of a replica, made by `Homes`.

It also routes the requests of Ray Serve LLM, by their session header and their prompts:
`request_router_class: caesura.runtime.front.router.SessionRouter`.
"""

import json
from collections import Counter
from typing import Any

from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

from caesura.runtime.front.asked import asked_of
from caesura.runtime.front.forwarded import Forwarded
from caesura.scheduler.policy.homes import Bounds, Homes
from caesura.scheduler.policy.routing import Asked, Load

PROMPTS = ("messages", "input", "prompt")


def server_name(replica: ReplicaID) -> str:
    """Return the name that a replica has in `Caesura-Server`."""
    return str(replica.unique_id)


class SessionRouter(RequestRouter):
    """Sends each request to the replica that has served its session, unless that is overloaded.

    `request_router_kwargs` are the fields of `Bounds`.
    """

    def initialize_state(self, **settings: Any) -> None:
        """Take the settings; called by Ray Serve before the first request."""
        self._homes = Homes(Bounds(**settings))
        self._in_flight: dict[str, str] = {}

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> list[list[RunningReplica]]:
        """Return the replicas in the order in which they are tried."""
        if pending_request is None or not candidate_replicas:
            return [candidate_replicas] if candidate_replicas else []
        pending_request.routing_context.should_backoff = True
        ranked = self._homes.ranked(asked_by(pending_request), self._loads(candidate_replicas))
        return [[candidate_replicas[place]] for place in ranked]

    def on_request_routed(
        self, pending_request: PendingRequest, replica_id: ReplicaID, result: object
    ) -> None:
        """Remember who got a request."""
        server = server_name(replica_id)
        self._homes.served(asked_by(pending_request), server)
        self._in_flight[pending_request.metadata.internal_request_id] = server

    def on_request_completed(self, replica_id: ReplicaID, internal_request_id: str) -> None:
        """Count a request as ended."""
        self._in_flight.pop(internal_request_id, None)

    def on_replica_actor_died(self, replica_id: ReplicaID) -> None:
        """Forget a replica that has gone."""
        super().on_replica_actor_died(replica_id)
        self._homes.gone(server_name(replica_id))

    def _loads(self, replicas: list[RunningReplica]) -> list[Load]:
        """Return the requests in flight of each replica: those sent from here, or all if known."""
        own = Counter(self._in_flight.values())
        known = self.replica_queue_len_cache
        names = [server_name(each.replica_id) for each in replicas]
        return [
            Load(max(own[name], known.get(each.replica_id) or 0), name=name)
            for name, each in zip(names, replicas, strict=True)
        ]


def asked_by(pending: PendingRequest) -> Asked:
    """Return what a request tells of its session."""
    for each in pending.args:
        if isinstance(each, Forwarded):
            return each.asked
    return _asked_of_call(pending)


def _asked_of_call(pending: PendingRequest) -> Asked:
    """Return what a call of Ray Serve LLM tells, whose argument has fields `messages` or so."""
    named = pending.metadata.session_id
    for each in pending.args:
        for name in PROMPTS:
            if value := getattr(each, name, None):
                body = json.dumps({name: value}, default=_as_data).encode()
                return asked_of("", body, named)
    return asked_of("", b"", named)


def _as_data(value: Any) -> Any:
    return value.model_dump() if hasattr(value, "model_dump") else str(value)
