"""Routers choose replicas from requests and loads alone."""

from collections import Counter

import pytest

from caesura.scheduler.policy.names import ABOUT_ROUTERS, ROUTERS, make_router
from caesura.scheduler.policy.routing import Asked, Load, PrefixRouter, Router, rendezvous


def loads(*requests: int, tokens: int = 0, most: int = 100) -> list[Load]:
    return [
        Load(count, tokens, most, 1000, name=str(place)) for place, count in enumerate(requests)
    ]


def serve(router: Router, one: Asked, there: list[Load]) -> int | None:
    """Let a router choose, and tell it that its choice got the request."""
    place = router.choose(one, there)
    if place is not None:
        router.served(one, there[place].name)
    return place


def spread(name: str, count: int) -> int:
    return max(range(count), key=lambda place: rendezvous(name, str(place)))


def asked(session: str = "s", turn: int = 0, holder: int | None = None, tokens: int = 10) -> Asked:
    return Asked(session, turn, tokens, ((session, tokens),), holder)


def test_every_router_is_described_and_chooses_a_replica() -> None:
    assert set(ABOUT_ROUTERS) == set(ROUTERS)
    for name in ROUTERS:
        assert make_router(name).choose(asked(), loads(3, 1, 2)) in (0, 1, 2)


def test_names_are_spread_evenly_and_few_move_with_a_further_replica() -> None:
    names = [f"session {number}" for number in range(2000)]
    before = {name: spread(name, 4) for name in names}
    counts = Counter(before.values())
    assert max(counts.values()) < 1.2 * min(counts.values())
    moved = [name for name in names if spread(name, 5) != before[name]]
    assert 300 < len(moved) < 500
    assert all(spread(name, 5) == 4 for name in moved)


def test_the_least_loaded_is_chosen_and_equals_in_turn() -> None:
    router = make_router("least")
    assert router.choose(asked(), loads(2, 1, 3)) == 1
    assert [router.choose(asked(), loads(5, 5, 5)) for _ in range(4)] == [2, 0, 1, 2]


def test_a_session_stays_until_its_replica_is_too_loaded() -> None:
    stays, leaves = make_router("affinity"), make_router("affinity:slack=4")
    assert stays.keeps and not leaves.keeps
    for router in (stays, leaves):
        assert router.choose(asked(holder=0), loads(4, 0)) == 0
    assert stays.choose(asked(holder=0), loads(50, 0)) == 0
    assert leaves.choose(asked(holder=0), loads(5, 0)) == 1


def test_the_longest_prefix_decides_unless_loads_differ_too_much() -> None:
    router = PrefixRouter(imbalance=3)
    system = ("system", 50)
    first = Asked("a", 0, 80, (system, ("a", 80)))
    assert serve(router, first, loads(0, 0, 0)) == 0
    other = Asked("b", 0, 90, (system, ("b", 90)))
    assert serve(router, other, loads(3, 0, 0)) == 0, "it begins as the first did"
    assert serve(router, Asked("c", 0, 80, (system, ("c", 80))), loads(4, 0, 0)) == 1
    assert serve(router, Asked("a", 1, 100, (system, ("a", 80))), loads(2, 0, 0)) == 0
    little = Asked("d", 0, 900, (system, ("d", 900)))
    assert serve(router, little, loads(2, 2, 0)) == 2, "the prefix is a small part of it"


def test_prefixes_are_forgotten_in_the_order_of_use() -> None:
    router = PrefixRouter(most_prefixes=2)
    assert [serve(router, asked(name), loads(0, 0)) for name in "ab"] == [0, 1]
    assert serve(router, asked("a"), loads(0, 0)) == 0
    serve(router, asked("c"), loads(0, 0))
    assert serve(router, asked("a"), loads(1, 0)) == 0, "b was forgotten"


def test_in_one_queue_a_request_waits_for_room() -> None:
    router = make_router("one-queue")
    assert router.choose(asked(), loads(2, 2, most=2)) is None
    assert router.choose(asked(), loads(2, 1, most=2)) == 1
    assert router.choose(asked(holder=0), loads(1, 0, most=2)) == 0
    assert router.choose(asked(tokens=300), loads(1, 1, tokens=800)) is None
    assert router.choose(asked(tokens=3000), loads(1, 0, tokens=0)) == 1, "an empty one takes all"


def test_chance_depends_on_the_request_and_the_seed_only() -> None:
    here = make_router("random")
    chosen = [here.choose(asked("s", turn), loads(*[0] * 8)) for turn in range(50)]
    again = [make_router("random").choose(asked("s", turn), loads(*[9] * 8)) for turn in range(50)]
    assert chosen == again and len(set(chosen)) > 4
    other = make_router("random:seed=1")
    assert chosen != [other.choose(asked("s", turn), loads(*[0] * 8)) for turn in range(50)]


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("affinity:slack=-1", "slack must be 0"),
        ("prefix:match=2", "match a share from 0 to 1"),
        ("nearest", "choose from: affinity, hash"),
    ],
)
def test_wrong_routers_are_told(spec: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        make_router(spec)
