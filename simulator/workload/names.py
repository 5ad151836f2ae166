"""Make a workload from its spec: `mix`, `mix:tools=chatbot+image,arrivals=bursty,cv=4`, ...

Two random generators draw the sessions and their arrivals, so that another rate with the same seed
brings the same sessions closer together or further apart.

Every workload has these options: `tokens`, `decode` and `pause` (factors on all tokens, on decoded
tokens, on the seconds of tools), `longest` (cap on the seconds of tools), `context` (tokens; 0 is
no limit), `shared` (the number of first tokens that all prompts of a kind share), `clients` and
`requests` (the numbers of clients and of sessions in a closed loop; 0 clients: no closed loop), and
`arrivals`:

- `poisson`;
- `bursty`: gamma inter-arrival times with `cv` (2);
- `azure`, `mooncake`: the arrivals of the file `trace`, stretched to the rate;
- `servegen`: the rate windows of the file `trace`, scaled to the rate, each `window` (600) s long;
- `recorded`: the arrivals of the record file, only for the workload `record` and its default.

InferCept's mixes take `tool` or `tools` (joined by `+`; `short`, `long` and `all` are groups) and
`balanced`. Past-Future's workloads take `most` (`preset`, `exact` or tokens), `ssjf` and
`reasoning` take `rounds`, `subagents` takes `fewest` and `most` sub-agents of a call, and `replay`
takes `people`.
"""

import itertools
import random
from collections.abc import Iterable, Iterator
from pathlib import Path

from caesura.simulator.session import Session, Workload
from caesura.simulator.workload.arrivals import Span, arrivals_of
from caesura.simulator.workload.draw import Draw, Team
from caesura.simulator.workload.options import Options, SpecError
from caesura.simulator.workload.sources import SOURCES


def make_workload(
    spec: str, rate: float, seconds: float, seed: int, data: Path | None = None
) -> Workload:
    """Return the workload of a spec, which depends only on the arguments and the data file.

    `rate` is the mean number of arrivals per second, and `seconds` is the span of the arrivals; a
    closed loop ignores both. Recorded arrivals with rate 0 stay unchanged. `data` is the file of
    the sessions. If the sessions need none and the spec has no `trace`, it is the file of the
    arrivals.

    Raises `SpecError`, a `ValueError`, for a wrong spec, a rate or span that is not positive, and
    missing or broken files.
    """
    options = Options(spec)
    if options.name not in SOURCES:
        raise options.error(f"unknown name {options.name!r}; choose from: {', '.join(SOURCES)}")
    try:
        return _made(options, Span(options, data, rate, seconds), seed)
    except SpecError:
        raise
    except ValueError as error:
        raise options.error(str(error)) from error


def _made(options: Options, span: Span, seed: int) -> Workload:
    source = SOURCES[options.name]
    draw = source.make(options, span.data)
    shared = options.whole("shared", 0)
    clients = options.whole("clients", source.clients)
    times: Iterable[float]
    if clients:
        coming = f"{clients} clients"
        times = itertools.repeat(0.0, options.whole("requests", source.requests, 1))
    else:
        coming, times = arrivals_of(span, random.Random(f"arrivals {seed}"))
    options.done()
    sessions = tuple(_sessions(draw, times, seed, shared))
    about = f"{source.about}; {coming}; seed {seed}"
    return Workload(options.spec, sessions, clients, about, seed)


def _sessions(draw: Draw, times: Iterable[float], seed: int, shared: int) -> Iterator[Session]:
    rng = random.Random(f"sessions {seed}")
    for index, now in enumerate(times):
        drawn, key = draw(rng), f"{seed}-{index}"
        kind, segments = (drawn.kind, drawn.segments) if isinstance(drawn, Team) else drawn
        common = min(shared, segments[0].given_tokens)
        name = kind if common else ""
        yield Session(key, kind, now, tuple(segments), name, common)
        if isinstance(drawn, Team):
            yield from _agents(drawn, key, now)


def _agents(team: Team, key: str, now: float) -> Iterator[Session]:
    """Yield the sub-agents of a parent; those of one call share their first tokens."""
    for index, agent in enumerate(team.agents):
        prefix = f"{key} {agent.call}"
        yield Session(
            f"{key}.{index}",
            agent.kind,
            now,
            tuple(agent.segments),
            prefix,
            agent.shared_tokens,
            parent=key,
            parent_call=agent.call,
        )
