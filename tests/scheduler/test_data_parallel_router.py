"""Requests go to the engine where the least has to be done first."""

import random
from collections.abc import Sequence

from caesura.scheduler.policy.data_parallel import (
    CHUNK_TOKENS,
    MAX_CHUNKS,
    LeastWork,
    Routed,
    Trail,
)
from caesura.scheduler.policy.names import make_router
from caesura.scheduler.policy.routing import Asked, Load

CONTEXT = list(range(20 * CHUNK_TOKENS))
KV_TOKENS = 1 << 20


class Engines:
    """Engines behind a router, whose loads follow what they do."""

    def __init__(self, engines: int, kv_tokens: int) -> None:
        self.router = LeastWork()
        self.loads = [Load(most_tokens=kv_tokens, name=str(number)) for number in range(engines)]

    def begins(self, engine: int, tokens: int) -> None:
        self.loads[engine].requests += 1
        self.loads[engine].prefill_tokens += tokens

    def decodes(self, engine: int, tokens: int) -> None:
        self.loads[engine].prefill_tokens -= tokens

    def ends(self, engine: int, decoded: int) -> None:
        self.loads[engine].requests -= 1
        self.router.ended(decoded)

    def holds(self, engine: int, chunks: Sequence[bytes]) -> None:
        self.router.holds(self.loads[engine].name, [(chunk, CHUNK_TOKENS) for chunk in chunks])


def trail_of(tokens: list[int], salt: str | None = None) -> Trail:
    trail = Trail(salt)
    trail.extend(tokens)
    return trail


def asked_of(tokens: list[int], salt: str | None = None) -> Asked:
    return Asked(tokens=len(tokens), prefixes=trail_of(tokens, salt).prefixes)


def choose(route: Engines, tokens: list[int], salt: str | None = None) -> Routed:
    return route.router.weigh(asked_of(tokens, salt), route.loads)


def serve(route: Engines, tokens: list[int], decoded: int = 10) -> int:
    """Route a request, run its only turn, and return its engine."""
    routed = choose(route, tokens)
    route.begins(routed.engine, len(tokens) - routed.held_tokens)
    route.router.served(asked_of(tokens), route.loads[routed.engine].name)
    route.decodes(routed.engine, len(tokens) - routed.held_tokens)
    route.ends(routed.engine, decoded)
    return routed.engine


def test_new_contexts_are_spread() -> None:
    route = Engines(3, KV_TOKENS)
    engines = [serve(route, [session] * 500) for session in range(9)]
    assert sorted(engines) == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_a_follow_up_returns_to_its_kv() -> None:
    route = Engines(4, KV_TOKENS)
    homes = {session: serve(route, [session, *CONTEXT]) for session in range(16)}
    for session, home in homes.items():
        routed = choose(route, [session, *CONTEXT, 7, 8, 9])
        assert routed == Routed(home, 20 * CHUNK_TOKENS, "kept")


def test_a_follow_up_is_known_by_its_longest_prefix() -> None:
    """A client that renders the last turn anew shares less than the whole context."""
    route = Engines(2, KV_TOKENS)
    home = serve(route, CONTEXT)
    routed = choose(route, [*CONTEXT[: 10 * CHUNK_TOKENS], *[5] * 400])
    assert routed == Routed(home, 10 * CHUNK_TOKENS, "kept")


def test_a_busy_engine_gives_a_short_context_away_and_keeps_a_long_one() -> None:
    route = Engines(2, KV_TOKENS)
    short, long = CONTEXT[: 2 * CHUNK_TOKENS], [9, *CONTEXT]
    home = serve(route, short)
    route.holds(home, trail_of(long).chunks)
    route.begins(home, 10 * CHUNK_TOKENS)
    assert choose(route, short) == Routed(1 - home, 0, "busy")
    assert choose(route, long).engine == home
    route.decodes(home, 10 * CHUNK_TOKENS)
    route.ends(home, 5)
    assert choose(route, short) == Routed(home, 2 * CHUNK_TOKENS, "kept")


def test_turns_that_decode_count_as_answers_of_mean_length() -> None:
    route = Engines(2, KV_TOKENS)
    home = serve(route, CONTEXT[: 2 * CHUNK_TOKENS], decoded=100)
    for _ in range(3):
        route.begins(home, 50)
        route.decodes(home, 50)
    assert route.loads[home].requests == 3
    assert choose(route, CONTEXT[: 2 * CHUNK_TOKENS]).engine == 1 - home


def test_another_salt_shares_nothing() -> None:
    route = Engines(2, KV_TOKENS)
    serve(route, CONTEXT)
    assert choose(route, CONTEXT, "tenant").held_tokens == 0


def test_tokens_in_pieces_make_the_same_chunks() -> None:
    rng, whole, pieces, at = random.Random(1), trail_of(CONTEXT), Trail(), 0
    new = []
    while at < len(CONTEXT):
        end = at + rng.randint(1, 150)
        new += pieces.extend(CONTEXT[at:end])
        at = end
    assert pieces.chunks == whole.chunks == new
    assert len(new) == 20


def test_only_one_engine_is_no_choice() -> None:
    assert choose(Engines(1, KV_TOKENS), CONTEXT) == Routed(0, 0, "only")


def test_an_engine_is_believed_to_hold_no_more_than_its_kv_cache() -> None:
    route = Engines(2, 10 * CHUNK_TOKENS)
    home = serve(route, CONTEXT)
    assert choose(route, CONTEXT) == Routed(home, 10 * CHUNK_TOKENS, "kept")
    route.holds(home, trail_of([1] * 8 * CHUNK_TOKENS).chunks)
    assert choose(route, CONTEXT).held_tokens == 2 * CHUNK_TOKENS


def test_memory_is_bounded_whatever_the_kv_cache() -> None:
    route = Engines(2, 1 << 60)
    chunks = [index.to_bytes(16, "big") for index in range(MAX_CHUNKS + 100)]
    choose(route, CONTEXT)
    route.holds(0, chunks)
    held = sum(chunk in route.router._memories["0"].known for chunk in chunks)
    assert held == MAX_CHUNKS


def test_the_simulated_router_chooses_what_the_client_of_engines_chooses() -> None:
    """Both are asked the same at the same loads; `simulate` makes its router by name."""
    rng = random.Random(2)
    route, simulated = Engines(3, 40 * CHUNK_TOKENS), make_router("data-parallel")
    chosen = set()
    for _ in range(60):
        tokens = [rng.randrange(4), *CONTEXT[: rng.randrange(1, len(CONTEXT))]]
        asked = asked_of(tokens)
        place = route.router.weigh(asked, route.loads).engine
        assert simulated.choose(asked, route.loads) == place
        simulated.served(asked, route.loads[place].name)
        route.router.served(asked, route.loads[place].name)
        route.begins(place, len(tokens))
        if rng.random() < 0.6:
            route.decodes(place, len(tokens))
            route.ends(place, 30)
            simulated.ended(30)
        chosen.add(place)
    assert chosen == {0, 1, 2}
    assert type(simulated) is LeastWork
