"""`caesura simulate --replicas`: every policy with every router, on a fleet of replicas."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from caesura.runtime.cli.simulate.options import ReplicaOptions, StudyOptions
from caesura.scheduler.policy.names import make_router
from caesura.simulator.policy import EPOCH_SECONDS, Fleet, Policy
from caesura.simulator.study.plan import Study, StudyError

ROUTERS = ("affinity,least,prefix",)


def routed(study: Study, how: StudyOptions, options: ReplicaOptions) -> Study:
    """Return the study with every policy behind every router; without --replicas it is as it was.

    Raises `StudyError` for invalid options.
    """
    if options.replicas is None:
        if options.routers or options.epoch is not None:
            given = "--router" if options.routers else "--epoch"
            raise StudyError(f"{given} needs --replicas: give their number, such as --replicas 8")
        return study
    if study.closed:
        raise StudyError(
            f"{study.workload}: clients that send session after session cannot be routed to"
            f" {options.replicas} replicas: give a workload with arrivals at a --rate"
        )
    if how.trace:
        raise StudyError(
            f"--trace shows one engine, got --replicas {options.replicas}: leave out one of the two"
        )
    epoch = EPOCH_SECONDS if options.epoch is None else options.epoch
    try:
        fleets = [
            Fleet(options.replicas, spec, epoch)
            for spec in parse_routers(options.routers or ROUTERS)
        ]
    except ValueError as error:
        raise StudyError(str(error)) from None
    alone = len(study.policies) == 1
    policies = tuple(_behind(policy, fleet, alone) for policy in study.policies for fleet in fleets)
    return replace(study, policies=policies, baseline=_baseline(how, policies))


def _behind(policy: Policy, fleet: Fleet, alone: bool) -> Policy:
    name = fleet.router if alone else f"{policy.name}, {fleet.router}"
    return replace(policy, name=name, fleet=fleet)


def _baseline(how: StudyOptions, policies: Sequence[Policy]) -> str:
    if how.baseline == "none" or (how.baseline is None and len(policies) == 1):
        return ""
    return how.baseline or policies[0].name


def parse_routers(texts: Sequence[str]) -> Iterator[str]:
    """Yield the routers of one or more texts such as `least,affinity:slack=4,prefix`.

    A comma starts the next router, unless `key=value` follows. Raises `StudyError`.
    """
    specs: list[str] = []
    for part in (part for text in texts for part in text.split(",") if part.strip()):
        if specs and "=" in part.partition(":")[0]:
            specs[-1] += f",{part.strip()}"
        else:
            specs.append(part.strip())
    for spec in specs:
        try:
            make_router(spec)
        except ValueError as error:
            raise StudyError(f"--router: {error}") from None
        yield spec


def processes_of(study: Study, jobs: int) -> int:
    """Return over how many processes the replicas of one run are spread, with `jobs` in all."""
    fleets = [policy.fleet for policy in study.policies]
    if not all(fleets):
        return 1
    return max(1, jobs // len(study.cells()))
