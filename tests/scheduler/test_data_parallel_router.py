"""Requests go to the engine where the least has to be done first."""

import random

from caesura.scheduler.policy.data_parallel import CHUNK_TOKENS, MAX_CHUNKS, Routed, Router, Trail

CONTEXT = list(range(20 * CHUNK_TOKENS))
KV_TOKENS = 1 << 20


def trail_of(tokens: list[int], salt: str | None = None) -> Trail:
    trail = Trail(salt)
    trail.extend(tokens)
    return trail


def choose(route: Router, tokens: list[int], salt: str | None = None) -> Routed:
    return route.choose(trail_of(tokens, salt), len(tokens))


def serve(route: Router, tokens: list[int], decoded: int = 10) -> int:
    """Route a request, run its only turn, and return its engine."""
    trail = trail_of(tokens)
    routed = route.choose(trail, len(tokens))
    route.begins(routed.engine, len(tokens) - routed.held_tokens)
    route.holds(routed.engine, trail.chunks)
    route.decodes(routed.engine, len(tokens) - routed.held_tokens)
    route.ends(routed.engine, decoded)
    return routed.engine


def test_new_contexts_are_spread() -> None:
    route = Router(3, KV_TOKENS)
    engines = [serve(route, [session] * 500) for session in range(9)]
    assert sorted(engines) == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_a_follow_up_returns_to_its_kv() -> None:
    route = Router(4, KV_TOKENS)
    homes = {session: serve(route, [session, *CONTEXT]) for session in range(16)}
    for session, home in homes.items():
        routed = choose(route, [session, *CONTEXT, 7, 8, 9])
        assert routed == Routed(home, 20 * CHUNK_TOKENS, "kept")


def test_a_follow_up_is_known_by_its_longest_prefix() -> None:
    """A client that renders the last turn anew shares less than the whole context."""
    route = Router(2, KV_TOKENS)
    home = serve(route, CONTEXT)
    routed = choose(route, [*CONTEXT[: 10 * CHUNK_TOKENS], *[5] * 400])
    assert routed == Routed(home, 10 * CHUNK_TOKENS, "kept")


def test_a_busy_engine_gives_a_short_context_away_and_keeps_a_long_one() -> None:
    route = Router(2, KV_TOKENS)
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
    route = Router(2, KV_TOKENS)
    home = serve(route, CONTEXT[: 2 * CHUNK_TOKENS], decoded=100)
    for _ in range(3):
        route.begins(home, 50)
        route.decodes(home, 50)
    assert route.turns[home] == 3
    assert choose(route, CONTEXT[: 2 * CHUNK_TOKENS]).engine == 1 - home


def test_another_salt_shares_nothing() -> None:
    route = Router(2, KV_TOKENS)
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
    assert choose(Router(1, KV_TOKENS), CONTEXT) == Routed(0, 0, "only")


def test_an_engine_is_believed_to_hold_no_more_than_its_kv_cache() -> None:
    route = Router(2, 10 * CHUNK_TOKENS)
    home = serve(route, CONTEXT)
    assert choose(route, CONTEXT) == Routed(home, 10 * CHUNK_TOKENS, "kept")
    route.holds(home, trail_of([1] * 8 * CHUNK_TOKENS).chunks)
    assert choose(route, CONTEXT).held_tokens == 2 * CHUNK_TOKENS


def test_memory_is_bounded_whatever_the_kv_cache() -> None:
    route = Router(2, 1 << 60)
    chunks = [index.to_bytes(16, "big") for index in range(MAX_CHUNKS + 100)]
    route.holds(0, chunks)
    held = sum(chunk in route._engines[0].chunks for chunk in chunks)
    assert held == MAX_CHUNKS
