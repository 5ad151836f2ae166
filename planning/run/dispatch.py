"""Sending ready requests to engines, until each request has exactly one result."""

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from caesura.planning.application.requests import Request, asked_by, with_asked
from caesura.planning.run.client import Completion, EngineBusy, EngineLost, Question, Refused
from caesura.planning.run.host import MAX_IN_FLIGHT, Endpoint
from caesura.planning.run.journal import Journal, OutputError, Result


class Work:
    """Requests by model, in the order in which they were given.

    A request is ready once all that it needs are done. If one of those has failed, it is in
    `blocked` instead, since its prompt can't be made. `take` returns every request once, unless it
    is put back.
    """

    def __init__(self, requests: Iterable[Request], done: Mapping[str, Result]) -> None:
        self.requests = {request.key: request for request in requests}
        self.done: dict[str, Result] = {k: v for k, v in done.items() if k in self.requests}
        self._asked = asked_by(self.requests.values())
        self._left = Counter(r.model for r in self.requests.values() if r.key not in self.done)
        self._missing: dict[str, int] = {}
        self._needed_by: dict[str, list[Request]] = defaultdict(list)
        self._ready: dict[str, deque[Request]] = defaultdict(deque)
        self.blocked: deque[Request] = deque()
        for request in self.requests.values():
            if request.key not in self.done:
                self._enter(request)

    @property
    def unfinished(self) -> tuple[str, ...]:
        """The models that have requests left, and those that such models ask as tools.

        They are in the order of their first request, and those without one come last.
        """
        models = dict.fromkeys(request.model for request in self.requests.values())
        own = [model for model in models if self._left[model]]
        needed = with_asked(own, self._asked)
        return (*(each for each in models if each in needed), *sorted(needed - models.keys()))

    def left(self, model: str) -> int:
        """Return how many of the model's requests are not done."""
        return self._left[model]

    def ready(self, model: str) -> int:
        """Return how many of the model's requests could be sent now."""
        return len(self._ready[model])

    def take(self, model: str) -> Request | None:
        """Return the model's next ready request, which is then in flight, or None."""
        return self._ready[model].popleft() if self._ready[model] else None

    def put_back(self, request: Request) -> None:
        """Make a request in flight the next one of its model again."""
        self._ready[request.model].appendleft(request)

    def finish(self, result: Result) -> tuple[str, ...]:
        """Count a result, and return the models that have more ready requests for it."""
        assert result.key not in self.done, f"{result.key} is done twice"
        self.done[result.key] = result
        self._left[self.requests[result.key].model] -= 1
        models = []
        for request in self._needed_by.pop(result.key, ()):
            self._missing[request.key] -= 1
            if not self._missing[request.key]:
                self._release(request)
                models.append(request.model)
        return tuple(dict.fromkeys(models))

    def failed_need(self, request: Request) -> Result | None:
        """Return the first failed result among those that a request needs, or None."""
        needed = (self.done[key] for key in request.needs)
        return next((result for result in needed if result.error), None)

    def outputs(self, request: Request) -> dict[str, str]:
        """Return the outputs that a request needs, by key."""
        return {key: self.done[key].output for key in request.needs}

    def _enter(self, request: Request) -> None:
        missing = {key for key in request.needs if key not in self.done}
        for key in missing:
            if key not in self.requests:
                raise ValueError(f"{request.key} needs {key!r}, which is no request")
            self._needed_by[key].append(request)
        self._missing[request.key] = len(missing)
        if not missing:
            self._release(request)

    def _release(self, request: Request) -> None:
        """Put a request, whose needs are done, among those that are ready or blocked."""
        failed = self.failed_need(request) is not None
        (self.blocked if failed else self._ready[request.model]).append(request)


@dataclass(frozen=True, slots=True)
class ModelFinished:
    """All requests of a model are done."""

    model: str


@dataclass(frozen=True, slots=True)
class ReplicaLost:
    """An engine ended or answers no more. Its requests wait again."""

    replica: str
    reason: str


@dataclass(frozen=True, slots=True)
class LoadFailed:
    """An engine could not be loaded."""

    replica: str
    reason: str


@dataclass(frozen=True, slots=True)
class Settled:
    """No request is in flight."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The run can't go on."""

    error: BaseException


Notice = ModelFinished | ReplicaLost | LoadFailed | Settled | Failed


MAX_BUSY = 8
"""How often an engine may put the same request off, before it fails."""
BUSY_SECONDS = 0.25
"""The wait after the first refusal of a busy engine; it doubles with each."""

Ask = Callable[[Endpoint, Question], Awaitable[Completion]]
Questions = Callable[[Request, Mapping[str, str]], Question]
"""Makes a request's question from the outputs that it needs; may raise any exception."""


@dataclass(slots=True)
class _Server:
    """A loaded replica and its requests in flight, by key."""

    name: str
    model: str
    endpoint: Endpoint
    accepts: bool = True
    in_flight: dict[str, asyncio.Task[Result | None]] = field(default_factory=dict)


class Dispatcher:
    """Sends each ready request to the replica of its model that has the fewest in flight.

    A request whose engine is lost or evicted waits again, however often. A request that the engine
    refuses gets a row with an error, and so do those that need it. `notify` is told of models that
    have finished, of lost replicas, and of results that can't be written.
    """

    def __init__(
        self,
        work: Work,
        journal: Journal,
        ask: Ask,
        questions: Questions,
        notify: Callable[[Notice], None],
        *,
        max_in_flight: int = MAX_IN_FLIGHT,
    ) -> None:
        self._work = work
        self._journal = journal
        self._ask = ask
        self._questions = questions
        self._notify = notify
        self._max_in_flight = max_in_flight
        self._servers: dict[str, _Server] = {}
        self._busy: Counter[str] = Counter()
        self._keeping: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Fail the requests whose needs have failed in a former run."""
        self._fail_blocked()

    def add(self, replica: str, model: str, endpoint: Endpoint) -> None:
        """Send requests of a model to a replica from now on.

        If others of the model run all that is ready, it takes its share of that over.
        """
        server = _Server(replica, model, endpoint)
        self._servers[replica] = server
        self._send(model)
        self._take_over(server)

    def _take_over(self, server: _Server) -> None:
        """Give a new replica its share of what others of its model run; that begins again there."""
        others = [
            list(each.in_flight.values())
            for each in self._servers.values()
            if each.model == server.model and each.accepts and each is not server
        ]
        share = (sum(map(len, others)) + len(server.in_flight)) // (len(others) + 1)
        for _ in range(share - len(server.in_flight)):
            max(others, key=len).pop().cancel()  # the newest, which has decoded the least

    async def drain(self, replica: str, seconds: float) -> None:
        """Send a replica no more, and wait for its requests; those left then wait again."""
        server = self._servers.get(replica)
        if server is None:
            return
        server.accepts = False
        if server.in_flight and seconds > 0:
            await asyncio.wait(server.in_flight.values(), timeout=seconds)
        await self._stop(server)
        self._servers.pop(replica, None)
        self._send(server.model)

    async def lose(self, replica: str) -> None:
        """Forget a replica; its requests wait again."""
        await self.drain(replica, 0.0)

    @property
    def busy(self) -> bool:
        """Whether requests are at engines, or results are being written."""
        return bool(self._keeping) or any(each.in_flight for each in self._servers.values())

    async def close(self) -> None:
        """Stop sending, and wait until results under way are kept."""
        for server in list(self._servers.values()):
            server.accepts = False
            await self._stop(server)
        self._servers.clear()
        while self._keeping:
            await asyncio.wait(self._keeping)

    async def _stop(self, server: _Server) -> None:
        for task in server.in_flight.values():
            task.cancel()
        if server.in_flight:
            await asyncio.wait(server.in_flight.values())

    def _send(self, model: str) -> None:
        """Send ready requests of a model while a replica takes more."""
        while (server := self._least_loaded(model)) is not None:
            request = self._work.take(model)
            if request is None:
                return
            try:
                question = self._questions(request, self._work.outputs(request))
            except Exception as error:  # a template is the user's, and may raise anything
                reason = f"its prompt can't be made: {type(error).__name__}: {error}"
                self._keep(self._failed(request, reason))
                continue
            task = asyncio.ensure_future(self._result(server, request, question))
            server.in_flight[request.key] = task
            # A callback, since a task that is cancelled before it starts runs none of its code.
            task.add_done_callback(partial(self._served, server, request))

    def _least_loaded(self, model: str) -> _Server | None:
        free = (
            server
            for server in self._servers.values()
            if server.model == model
            and server.accepts
            and len(server.in_flight) < self._max_in_flight
        )
        return min(free, key=lambda server: len(server.in_flight), default=None)

    def _served(self, server: _Server, request: Request, task: asyncio.Task[Result | None]) -> None:
        """Keep the result of a request, or put the request back."""
        del server.in_flight[request.key]
        result = None
        if not task.cancelled():
            if (error := task.exception()) is not None:
                self._notify(Failed(error))
            else:
                result = task.result()
        if result is None:
            self._work.put_back(request)
        else:
            self._keep(result)
        self._send(request.model)
        self._tell_if_settled()

    async def _result(self, server: _Server, request: Request, question: Question) -> Result | None:
        """Return the result, or None if the request must be sent again."""
        begun = self._journal.seconds
        try:
            answer = await self._ask(server.endpoint, question)
        except EngineLost as lost:
            if server.accepts:
                server.accepts = False
                self._notify(ReplicaLost(server.name, str(lost)))
            return None
        except EngineBusy as busy:
            self._busy[request.key] += 1
            if self._busy[request.key] >= MAX_BUSY:
                return self._failed(request, f"the engine put it off {MAX_BUSY} times: {busy}")
            await asyncio.sleep(BUSY_SECONDS * 2 ** self._busy[request.key])
            return None
        except Refused as refused:
            return self._failed(request, f"the engine refused it: {refused}")
        return Result(
            key=request.key,
            task=request.task,
            model=request.model,
            output=answer.text,
            prompt_tokens=answer.prompt_tokens,
            output_tokens=answer.output_tokens,
            finish=answer.finish,
            begun=round(begun, 3),
            seconds=round(self._journal.seconds - begun, 3),
            replica=server.name,
        )

    def _failed(self, request: Request, reason: str) -> Result:
        at = round(self._journal.seconds, 3)
        return Result(request.key, request.task, request.model, error=reason, begun=at)

    def _keep(self, result: Result) -> None:
        """Write a result in a task of its own, which eviction does not cancel."""
        task = asyncio.ensure_future(self._write(result))
        self._keeping.add(task)
        task.add_done_callback(self._kept)

    def _kept(self, task: asyncio.Task[None]) -> None:
        self._keeping.discard(task)
        self._tell_if_settled()

    def _tell_if_settled(self) -> None:
        if not self.busy:
            self._notify(Settled())

    async def _write(self, result: Result) -> None:
        try:
            await self._journal.append(result)
        except OutputError as error:
            self._notify(Failed(error))
            return
        models = self._work.finish(result)
        self._fail_blocked()
        for model in models:
            self._send(model)
        if not self._work.left(result.model):
            self._notify(ModelFinished(result.model))

    def _fail_blocked(self) -> None:
        while self._work.blocked:
            request = self._work.blocked.popleft()
            failed = self._work.failed_need(request)
            assert failed is not None
            self._keep(self._failed(request, f"it needs {failed.key}, which failed"))
