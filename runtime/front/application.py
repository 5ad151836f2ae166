"""The application of Ray Serve: a front, and the servers behind it."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ray import serve
from ray.serve.config import RequestRouterConfig

from caesura.runtime.front.front import Front
from caesura.runtime.front.router import SessionRouter
from caesura.runtime.front.server import OpenApp, Server
from caesura.scheduler.policy.homes import Bounds

SERVERS, FRONT = "Server", "Front"
MAX_ONGOING = 1024
"""Requests that a server may have at once. Paused ones count, so it is far above the batch."""


def session_app(
    open_app: OpenApp,
    bounds: Bounds | None = None,
    *,
    server_options: Mapping[str, Any] | None = None,
    front_options: Mapping[str, Any] | None = None,
) -> Any:
    """Return an application for `serve.run`, whose servers are opened by `open_app`.

    `open_app` must be picklable, and is called in each replica. The options are those of Ray
    Serve's deployments: `num_replicas`, `ray_actor_options` and so on.
    """
    # Ray Serve's own annotations are wrong here.
    router_class: Any = SessionRouter
    router = RequestRouterConfig(
        request_router_class=router_class,
        request_router_kwargs=asdict(bounds or Bounds()),
    )
    deployment: Any = serve.deployment
    told: dict[str, Any] = {"max_ongoing_requests": MAX_ONGOING, **(server_options or {})}
    servers = deployment(Server).options(name=SERVERS, request_router_config=router, **told)
    forwarding: dict[str, Any] = {"max_ongoing_requests": MAX_ONGOING, **(front_options or {})}
    front = deployment(serve.ingress(_front)()).options(name=FRONT, **forwarding)
    return front.bind(servers.bind(open_app))


def _front() -> Front:
    """Return the front, in its replica."""
    return Front(serve.get_deployment_handle(SERVERS))
