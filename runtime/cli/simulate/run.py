"""`caesura simulate`: parses the options, runs the study, and lists the known names."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from caesura.runtime.cli.options import search_here
from caesura.runtime.cli.simulate.options import ReplicaOptions, StudyOptions, WorkloadOptions
from caesura.runtime.cli.simulate.replicas import processes_of, routed
from caesura.runtime.cli.simulate.study import make_study
from caesura.scheduler.policy.names import ABOUT_ROUTERS
from caesura.scheduler.policy.slo import Slo
from caesura.scheduler.settings import Settings
from caesura.simulator.latency.machines import PLANS, make_machine
from caesura.simulator.policy import POLICIES, Policy, parse_policy
from caesura.simulator.study.plan import Study, StudyError
from caesura.simulator.study.work import simulate_cell
from caesura.simulator.workload.names import make_workload
from caesura.simulator.workload.options import Options
from caesura.simulator.workload.sources import SOURCES

POLICIES_COMPARED = ("stock,caesura",)
POLICY_ROUTED = "caesura"
MACHINE = ("gptj-6b-a100-40g",)
RATES = ("1,2",)
"""The defaults of a study, which then takes a minute or two."""


def simulate(load: WorkloadOptions, how: StudyOptions, replicas: ReplicaOptions, out: Path) -> None:
    """Run the study that the options describe; raise `StudyError` for invalid options."""
    closed, loads = _loads(load.workload, load.rates or (), load.clients)
    if replicas.replicas is not None and not how.policies:
        how = replace(how, policies=[POLICY_ROUTED])
    study = study_of(how, load.workload, load.data, loads, load.seconds)
    study = replace(study, closed=closed, seeds=parse_seeds(load.seeds))
    start(routed(study, how, replicas), how, out)


def study_of(
    how: StudyOptions, workload: str, data: Path | None, rates: tuple[float, ...], seconds: float
) -> Study:
    """Return the study of a workload with one seed; raise `StudyError` for invalid options."""
    policies = tuple(parse_policies(how.policies or POLICIES_COMPARED))
    # The first policy is the baseline, unless it is the only one.
    try:
        slo = Slo.parse(how.slo) if how.slo is not None else None
    except ValueError as error:
        raise StudyError(f"--slo {how.slo}: {error}") from None
    baseline = how.baseline or (policies[0].name if len(policies) > 1 else "")
    return Study(
        workload=workload,
        policies=policies,
        rates=rates,
        seeds=(0,),
        machines=tuple(how.machines or MACHINE),
        seconds=seconds,
        data=data,
        window=how.window,
        warm_up=how.warm_up,
        baseline="" if baseline == "none" else baseline,
        slo=slo,
    )


def start(study: Study, how: StudyOptions, out: Path) -> None:
    """Check a study, which may take minutes, and run it in the folder `out`.

    Raises `StudyError`.
    """
    cell = study.cells()[0]
    try:
        for machine in study.machines:
            make_machine(machine)
        workload = make_workload(cell.workload, cell.rate, cell.seconds, cell.seed, cell.data)
    except ValueError as error:
        raise StudyError(str(error)) from None
    if not workload.sessions:
        raise StudyError(
            f"no session arrives within {study.seconds:g} s at {study.load(cell.rate)}:"
            " raise --rate or --seconds"
        )
    jobs = how.jobs or cores()
    processes = processes_of(study, jobs)
    if processes == 1:
        make_study(study, out, jobs, how.quiet, how.trace)
    else:
        work = partial(simulate_cell, processes=processes)
        make_study(study, out, len(study.cells()), how.quiet, how.trace, work=work)


def cores() -> int:
    """Return the number of cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


# -- parsing the options -------------------------------------------------------------------------


def parse_policies(texts: Sequence[str]) -> Iterator[Policy]:
    """Yield the policies of one or more texts such as `name,name:key=value,key=value,name`.

    A comma starts the next policy, unless `key=value` follows, which continues the policy before
    it. Raises `StudyError`.
    """
    specs: list[str] = []
    for text in texts:
        begun = False
        for part in filter(None, text.split(",")):
            # In `lamps:ranking=fcfs`, a colon precedes the first equals sign.
            if begun and "=" in part.partition(":")[0]:
                specs[-1] += f"{',' if ':' in specs[-1] else ':'}{part}"
            else:
                specs.append(part.strip())
                begun = True
    for spec in specs:
        search_here(spec)
        try:
            policy = parse_policy(spec)
            if policy.engine == "caesura":
                Settings.from_mapping(policy.settings)
        except ValueError as error:
            raise StudyError(f"--policy {spec}: {error}") from None
        yield policy


def parse_seeds(text: str) -> tuple[int, ...]:
    """Return the seeds of `5` (0 to 4), `31-35` (five seeds) or `1,4,9`; raise `StudyError`."""
    try:
        if "," in text:
            return tuple(int(part) for part in text.split(",") if part)
        first, dash, last = text.partition("-")
        return tuple(range(int(first), int(last) + 1)) if dash else tuple(range(int(text)))
    except ValueError:
        raise StudyError(f"--seeds must be like 5, 31-35 or 1,4,9, got {text!r}") from None


def parse_numbers(option: str, texts: Sequence[str]) -> tuple[float, ...]:
    """Return the numbers of one or more texts such as `1,2.5,3`; raise `StudyError`."""
    try:
        return tuple(float(part) for text in texts for part in text.split(",") if part)
    except ValueError:
        raise StudyError(f"{option} must be numbers like 1,2.5, got {','.join(texts)!r}") from None


def _loads(workload: str, rates: Sequence[str], clients: str) -> tuple[bool, tuple[float, ...]]:
    """Return whether the workload is a closed loop, and its loads: rates, or numbers of clients."""
    try:
        options = Options(workload)
        source = SOURCES.get(options.name)
        own = options.whole("clients", source.clients if source is not None else 0)
    except ValueError as error:
        raise StudyError(str(error)) from None
    if not (own or clients):
        return False, parse_numbers("--rate", rates or RATES)
    if rates:
        raise StudyError(
            f"{workload}: sessions come from clients, not at a rate, got --rate"
            f" {','.join(rates)}: give --clients instead"
        )
    return True, parse_numbers("--clients", [clients or str(own)])


# -- known names ---------------------------------------------------------------------------------


MADE_MACHINES = {
    "calibration:path=FILE": "the costs that `caesura calibrate` measured; also takes kv=, host=",
    "samullm:model=NAME": "an A100-80G with the costs of SamuLLM's timed iterations",
}


def list_names() -> None:
    """Print workloads, machines and policies, with a line about each."""
    console = Console()
    workloads = {
        name: source.about + (f"; --data: {source.file}" if source.file else "")
        for name, source in SOURCES.items()
    }
    machines = {
        name: f"{plan.kv_tokens:,} tokens of KV, link {plan.link_bytes / 1e9:g} GB/s,"
        f" host {plan.host_bytes / 1e9:g} GB"
        for name, plan in PLANS.items()
    }
    machines |= MADE_MACHINES
    policies = {name: describe(policy) for name, policy in POLICIES.items()}
    for title, names in (
        ("workloads", workloads),
        ("machines", machines),
        ("policies", policies),
        ("routers", ABOUT_ROUTERS),
    ):
        table = Table(title=title, title_justify="left", title_style="bold", box=None)
        table.add_column(no_wrap=True)
        table.add_column(style="dim")
        table.show_header = False
        for name, about in names.items():
            table.add_row(escape(name), escape(about))
        console.print(table, highlight=False)


def describe(policy: Policy) -> str:
    """Return a line that describes a policy."""
    if policy.engine == "caesura":
        settings = policy.settings
        said = [f"handling {settings['handling']}", f"ranking {settings['ranking']}"]
        said += ["no back-filling"] if settings.get("backfill") is False else []
    else:
        said = ["vLLM's own scheduler"]
        said += ["its offloading to the host"] if policy.engine == "stock-offload" else []
    saturating = policy.engine == "caesura" and policy.settings.get("chunk", "auto") == "auto"
    said.append("chunks by saturation" if saturating else f"chunks of {policy.chunk_tokens} tokens")
    told = {
        "no prefix caching": not policy.prefix_caching,
        "follow-ups at their session's place": policy.session_order,
        "steps wait for copies": policy.synchronous_swap,
        "a bound: copies take no time": policy.free_link,
    }
    return ", ".join(said + [words for words, holds in told.items() if holds])
