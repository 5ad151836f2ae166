"""Data-parallel engines ("ranks") as one: where a request goes, and the sums of their states.

vLLM's load balancer goes by the number of requests. `caesura.scheduler.data_parallel` also knows
which engine has the KV of a context. A request names its rank, also in every later chunk: vLLM
forgets where a session was as soon as the session has ended in the engine.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from prometheus_client import Counter
from vllm.config import VllmConfig
from vllm.outputs import RequestOutput
from vllm.v1.engine.async_llm import AsyncLLM

from caesura.scheduler.policy.data_parallel import CHUNK_TOKENS, LeastWork, Trail
from caesura.scheduler.policy.routing import Asked, Load

ROUTED = Counter(
    "caesura_routed_requests",
    "Requests routed to data-parallel engines: kept where their KV is, moved since that engine is"
    " busy, or new.",
    ["engine", "why"],
)
_ROUTES: "WeakKeyDictionary[AsyncLLM, Routes]" = WeakKeyDictionary()


class Route:
    """The rank that a request names, None for any, where nothing is counted."""

    def __init__(self, rank: int | None = None) -> None:
        self.rank = rank

    def pushed(self, tokens: Sequence[int]) -> None:
        """Take note that a further turn begins with these tokens."""

    def sampled(self, output: RequestOutput) -> None:
        """Take note of sampled tokens."""

    def ended(self) -> None:
        """Take note that a turn has ended, however it ended; a second call does nothing."""


class CountedRoute(Route):
    """A request's rank where there are several, and what the request does there."""

    def __init__(
        self, router: LeastWork, loads: Sequence[Load], tokens: Sequence[int], salt: str | None
    ) -> None:
        """Choose a rank for a request with these tokens, whose first turn begins."""
        self._router = router
        self._trail = Trail(salt)
        self._trail.extend(tokens)
        asked = Asked(tokens=len(tokens), prefixes=self._trail.prefixes)
        routed = router.weigh(asked, loads)
        ROUTED.labels(str(routed.engine), routed.why).inc()
        super().__init__(routed.engine)
        self._load = loads[routed.engine]
        self._prefills = 0
        self._decoded = 0
        self._in_turn = False
        self._begin(len(tokens) - routed.held_tokens)
        router.served(asked, self._load.name)

    def pushed(self, tokens: Sequence[int]) -> None:
        """Count the begin of a further turn; the first token was sampled last, and is known."""
        self._begin(len(tokens))
        self._took(tokens[1:])

    def sampled(self, output: RequestOutput) -> None:
        """Count sampled tokens, and the end of a turn."""
        self._prefilled()
        piece = output.outputs[0]
        self._decoded += len(piece.token_ids)
        self._took(list(piece.token_ids))
        if piece.finish_reason is not None:
            self.ended()

    def ended(self) -> None:
        """Count the end of a turn, once."""
        if not self._in_turn:
            return
        self._in_turn = False
        self._prefilled()
        self._load.requests -= 1
        self._router.ended(self._decoded)
        self._decoded = 0

    def _begin(self, tokens: int) -> None:
        self.ended()
        self._in_turn = True
        self._prefills = max(1, tokens)
        self._load.requests += 1
        self._load.prefill_tokens += self._prefills

    def _prefilled(self) -> None:
        self._load.prefill_tokens -= self._prefills
        self._prefills = 0

    def _took(self, tokens: Sequence[int]) -> None:
        new = self._trail.extend(tokens)
        if new:
            self._router.holds(self._load.name, [(chunk, CHUNK_TOKENS) for chunk in new])


class Routes:
    """Gives each request of a client its route."""

    def __init__(self, config: VllmConfig) -> None:
        """Create it for a client whose engines have started, from its configuration."""
        self.ranks = ranks_of(config)
        """The numbers of the engines that this client may name."""
        tokens = kv_tokens_of(config)
        self.loads = [Load(most_tokens=tokens, name=str(rank)) for rank in self.ranks]
        self._router = LeastWork() if len(self.ranks) > 1 else None

    @property
    def several(self) -> bool:
        """Whether there are several engines."""
        return self._router is not None

    @property
    def first(self) -> Route:
        """The route of requests that only the first engine is to serve."""
        return Route(0 if self.several else None)

    def of(self, tokens: Sequence[int], salt: str | None = None) -> Route:
        """Return the route of a new request with these tokens."""
        if self._router is None:
            return Route()
        return CountedRoute(self._router, self.loads, tokens, salt)


def routes_of(llm: AsyncLLM) -> Routes:
    """Return the routes of a client's requests, one object for each client."""
    found = _ROUTES.get(llm)
    if found is None:
        found = _ROUTES[llm] = Routes(llm.vllm_config)
    return found


def ranks_of(config: VllmConfig) -> range:
    """Return the ranks that requests of this process can name: all that the process has started."""
    parallel = config.parallel_config
    if parallel.local_engines_only:
        return range(parallel.data_parallel_size_local)
    return range(parallel.data_parallel_size)


def kv_tokens_of(config: VllmConfig) -> int:
    """Return the tokens of KV of one engine; its client knows the blocks of all together."""
    cache = config.cache_config
    if cache.kv_cache_size_tokens:  # vLLM's count, since blocks may be shared by groups of layers
        return cache.kv_cache_size_tokens
    return int(cache.num_gpu_blocks or 0) * int(cache.block_size or 1) // len(ranks_of(config))


def combined(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the sums of the engines' counts, and with several the single ones as `engines`.

    What is not a count is that of the first engine.
    """
    if len(states) == 1:
        return dict(states[0])
    return {**_sums(states), "engines": [dict(state) for state in states]}


def _sums(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    first, found = states[0], {}
    for name, value in first.items():
        values = [state[name] for state in states if name in state]
        if isinstance(value, Mapping):
            found[name] = _sums(values)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found[name] = sum(values)
        else:
            found[name] = value
    return found
