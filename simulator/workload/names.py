"""Makes a workload from its name: `mix`, `mix:tools=chatbot+image,arrivals=bursty,cv=4`, ...

What sessions look like and when they arrive are drawn by two generators, so that another rate with
the same seed brings the same sessions closer together or further apart.

Options of every workload: `tokens`, `decode` and `pause` (factors on token counts, on what is
decoded, on tools' seconds), `longest` (seconds; tools that take longer are cut to it), `context`
(tokens; 0 is no limit), `shared` (so many first tokens of a prompt are the same in all sessions of
a kind), `clients` and `requests` (so many clients send so many sessions in a closed loop; 0
clients: sessions arrive by themselves), and `arrivals`:

- `poisson`;
- `bursty`: gamma inter-arrival times with `cv` (2);
- `azure`, `mooncake`: as in the file `trace`, stretched to the rate;
- `servegen`: by the rate windows in `trace`, scaled to the rate, each lasting `window` (600) s;
- `recorded`: as in the record file; of the workload `record`, whose default it is.

`mix` and its kin take `tool` or `tools` (joined by `+`; `short`, `long` and `all` are groups) and
`balanced`; Past-Future's `most` (`preset`, `exact` or tokens); `ssjf` takes `rounds`, and `replay`
takes `people`.
"""

import itertools
import random
from collections.abc import Iterable, Iterator
from pathlib import Path

from caesura.simulator.session import Session, Workload
from caesura.simulator.workload.arrivals.timing import Span, arrivals_of
from caesura.simulator.workload.draw import Draw
from caesura.simulator.workload.options import Options, SpecError
from caesura.simulator.workload.sources import SOURCES


def make_workload(
    spec: str, rate: float, seconds: float, seed: int, data: Path | None = None
) -> Workload:
    """Make the workload of a specification: a function of its arguments and of the data file.

    `rate` is the mean number of sessions that arrive in a second, `seconds` the span in which they
    arrive; a closed loop has no use for either. Recorded arrivals with rate 0 stay as they were.
    `data` is the file that sessions are read from, or else, where they need none and the
    specification has no `trace`, arrivals.

    Raises `SpecError`, a `ValueError` that says what there is, for a specification that is none, a
    rate or span that is not positive, and files that are missing or broken.
    """
    options = Options(spec)
    if options.name not in SOURCES:
        raise options.error(f"there is no {options.name!r}; there are {', '.join(SOURCES)}")
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
    return Workload(options.spec, sessions, clients, f"{source.about}; {coming}; seed {seed}")


def _sessions(draw: Draw, times: Iterable[float], seed: int, shared: int) -> Iterator[Session]:
    rng = random.Random(f"sessions {seed}")
    for index, now in enumerate(times):
        kind, segments = draw(rng)
        common = min(shared, segments[0].given_tokens)
        name = kind if common else ""
        yield Session(f"{seed}-{index}", kind, now, tuple(segments), name, common)
