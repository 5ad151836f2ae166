"""Writing a plan as files for the deployments that people run already."""

from collections.abc import Callable, Mapping

from caesura.planning.application.application import Application
from caesura.planning.plan import Plan
from caesura.planning.show.compose import compose_files
from caesura.planning.show.engines import EmitError
from caesura.planning.show.kubernetes import kubernetes_files
from caesura.planning.show.ray_serve import ray_serve_files

KINDS: Mapping[str, Callable[[Plan, Application], Mapping[str, str]]] = {
    "compose": compose_files,
    "ray-serve": ray_serve_files,
    "k8s": kubernetes_files,
}


def emit(plan: Plan, application: Application, kind: str) -> dict[str, str]:
    """Return the texts of a deployment's files by their names; `kind` is one of `KINDS`.

    Raises `EmitError` for an unknown kind, and for a plan that cannot be written.
    """
    if kind not in KINDS:
        raise EmitError(f"{kind!r} is no kind of deployment: use one of {', '.join(KINDS)}")
    return dict(KINDS[kind](plan, application))
