"""The routers of requests to replicas of an engine, by name.

They are pure: the same requests and loads give the same choices. The simulator compares them; the
front of real servers, which come and go, has a rule of its own in `runtime/front/routes.py`.
"""

from collections.abc import Callable

from caesura.scheduler.named import make_named
from caesura.scheduler.routing.by_load import Affinity, Least, OneQueue
from caesura.scheduler.routing.by_prefix import PrefixRouter
from caesura.scheduler.routing.fixed import Hash, RandomChoice, RoundRobin
from caesura.scheduler.routing.view import Router

ROUTERS: dict[str, Callable[..., Router]] = {
    "affinity": Affinity,
    "hash": Hash,
    "least": Least,
    "prefix": PrefixRouter,
    "round-robin": RoundRobin,
    "random": RandomChoice,
    "one-queue": OneQueue,
}

ABOUT = {
    "affinity": "a session begins at the least loaded replica and stays; `slack=4` lets it leave",
    "hash": "every session at the replica that its name hashes to",
    "least": "every request at the replica with the fewest requests",
    "prefix": "the replica that saw most of the prompt's prefix, unless the loads differ too much",
    "round-robin": "replicas in turn, for every request",
    "random": "a replica by chance, for every request",
    "one-queue": "requests wait in one queue for a replica with room, first that of their session",
}
"""A line about each router."""


def make_router(spec: str) -> Router:
    """Return the router of a spec such as `affinity:slack=4`.

    Raises `ValueError` that lists the names or the keys.
    """
    return make_named(spec, ROUTERS, "router")
