"""The requests of a run: which are done, which are ready, and which wait for others."""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping

from caesura.planning.application.requests import Request, asked_by, with_asked
from caesura.planning.run.journal import Result


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
