"""Fair shares between tenants, and programs of sessions that name a parent."""

from itertools import count, pairwise

import pytest

from caesura.scheduler.policy.shares import Accounts
from caesura.scheduler.programs import MAX_IDLE_SECONDS, Origin, Programs
from caesura.scheduler.settings import Settings

from .world import World, make_scheduler


def test_consumption_counts_by_weight() -> None:
    accounts = Accounts({"paid": 4.0})
    for tenant in ("paid", "free"):
        accounts.charge(tenant, 8.0)
    assert (accounts["paid"], accounts["free"]) == (2.0, 8.0)


@pytest.mark.parametrize("weight", [0, -1.0, float("nan"), float("inf"), True, "3"])
def test_weights_that_are_none_are_refused(weight: object) -> None:
    with pytest.raises(ValueError, match="the weight of 'one' must be"):
        Settings.from_mapping({"weights": {"one": weight}})


def test_an_unknown_fairness_is_refused() -> None:
    with pytest.raises(ValueError, match="fair must be off or tenant, got 'user'"):
        Settings(fair="user")


def test_an_absent_tenant_saves_nothing_up() -> None:
    accounts = Accounts()
    accounts.set_present({"busy"})
    accounts.charge("busy", 100.0)
    accounts.set_present({"busy", "back"})
    assert accounts["back"] == 100.0


def test_a_tenant_that_consumed_more_is_not_brought_down() -> None:
    accounts = Accounts()
    accounts.set_present({"modest"})
    accounts.charge("greedy", 50.0)
    accounts.charge("modest", 10.0)
    accounts.set_present({"modest", "greedy"})
    assert accounts["greedy"] == 50.0


def test_accounts_of_absent_tenants_are_forgotten() -> None:
    accounts = Accounts(max_tenants=2)
    for name in ("a", "b", "c"):
        accounts.charge(name, 5.0)
    accounts.set_present({"c"})
    assert (accounts["a"], accounts["c"]) == (0.0, 5.0)


def test_requests_begin_one_after_the_other_by_tenant() -> None:
    accounts = Accounts({"b": 2.0})
    accounts.charge("a", 1.0)
    begins = accounts.begins([("a", 3.0), ("a", 3.0), ("b", 3.0), ("b", 3.0), ("b", 3.0)])
    assert begins == [1.0, 4.0, 0.0, 1.5, 3.0]


def test_a_program_begins_with_its_first_session() -> None:
    programs = Programs()
    assert programs.arrival(Origin("t", session="main"), 10.0) == 10.0
    assert programs.arrival(Origin("t", parent="main"), 50.0) == 10.0
    assert programs.arrival(Origin("t", session="child", parent="main"), 60.0) == 10.0
    assert programs.arrival(Origin("t", parent="child"), 70.0) == 10.0, "sub-agents of sub-agents"
    assert programs.arrival(Origin("t"), 80.0) == 80.0


def test_a_parent_counts_only_within_its_tenant() -> None:
    programs = Programs()
    programs.arrival(Origin("theirs", session="main"), 10.0)
    assert programs.arrival(Origin("mine", parent="main"), 50.0) == 50.0


def test_siblings_of_an_unknown_parent_are_one_program() -> None:
    programs = Programs()
    assert programs.arrival(Origin("t", parent="gone"), 50.0) == 50.0
    assert programs.arrival(Origin("t", parent="gone"), 60.0) == 50.0


def test_a_name_is_bounded_in_idle_time_and_in_number() -> None:
    programs = Programs(max_programs=2)
    programs.arrival(Origin("t", session="main"), 0.0)
    assert programs.arrival(Origin("t", parent="main"), MAX_IDLE_SECONDS) == 0.0
    late = 2 * MAX_IDLE_SECONDS + 1
    assert programs.arrival(Origin("t", parent="main"), late) == late
    for name in ("a", "b"):
        programs.arrival(Origin("t", session=name), late)
    assert programs.arrival(Origin("t", parent="main"), late + 1) == late + 1


def ends_of(fair: str, **settings: object) -> list[str]:
    """Twelve requests of one tenant queue first, then three of another; the order of their ends."""
    # The clock moves whenever it is read, so that steps take time.
    clock = count(0.0, 0.01).__next__
    world = World(make_scheduler(max_num_seqs=2, fair=fair, clock=clock, **settings))
    for index in range(12):
        begin = 1000 * index
        world.plain(f"many-{index}", range(begin, begin + 20), "x" * 8, caesura_tenant="many")
    for index in range(3):
        begin = 50_000 + 1000 * index
        world.plain(f"few-{index}", range(begin, begin + 20), "x" * 8, caesura_tenant="few")
    ended: list[str] = []
    while len(ended) < 15:
        world.step()
        done = [key for key, one in world.sessions.items() if one.finished and key not in ended]
        ended += done
    return ended


def last_of_few(ended: list[str]) -> int:
    return max(place for place, key in enumerate(ended) if key.startswith("few"))


def test_a_tenant_with_many_requests_does_not_push_out_another() -> None:
    assert last_of_few(ends_of("off")) == 14
    fair = ends_of("tenant")
    assert last_of_few(fair) <= 7, fair
    own = [key for key in fair if key.startswith("many")]
    assert all(int(a[5:]) < int(b[5:]) for a, b in pairwise(own)), "its own order stays"


def test_a_weight_gives_a_larger_share() -> None:
    assert last_of_few(ends_of("tenant", weights={"few": 100.0})) <= 4
    assert last_of_few(ends_of("tenant", weights={"few": 0.01})) == 14


def test_large_requests_of_a_modest_tenant_are_not_overtaken_for_ever() -> None:
    """Small requests of one tenant arrive without end; they fit where a large one does not."""
    world = World(
        make_scheduler(blocks=20, max_model_len=320, fair="tenant", max_overtaken_steps=5)
    )
    for step in range(120):
        if step == 20:
            world.plain("large", range(1000, 1270), "x", caesura_tenant="modest")
        if step % 12 == 0:
            begin = 5000 + step * 200
            world.plain(f"s{step}", range(begin, begin + 100), "x" * 30, caesura_tenant="many")
        world.step()
    assert world.sessions["large"].finished


def test_a_sub_agent_has_its_parents_place() -> None:
    world = World(make_scheduler(max_num_seqs=1))
    world.plain("main", range(20), "x" * 30, caesura_session="main")
    world.step()
    world.plain("other", range(1000, 1020), "x")
    world.plain("child", range(2000, 2020), "x", caesura_parent="main")
    world.plain("stranger", range(3000, 3020), "x", caesura_parent="main", caesura_tenant="else")
    while not world.sessions["main"].finished:
        world.step()
    ended = []
    while len(ended) < 3:
        world.step()
        ended += [
            k for k, one in world.sessions.items() if one.finished and k not in (*ended, "main")
        ]
    assert ended == ["child", "other", "stranger"]
