"""What every `JournalStore` must do. A test module inherits the class and gives the stores."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from caesura.runtime.journal.store import Bounds, Entry, JournalStore

Opened = Callable[[], JournalStore]


def entries(run: str, *numbers: int, body: str = "") -> list[Entry]:
    """Return entries of a run, whose bodies tell their numbers."""
    return [Entry(run, number, body or f'"{number}"') for number in numbers]


class JournalContract:
    """The contract. `opened` is a fixture: a function that opens one more store of the same data.

    Each store that it returns stands for another server. The owners are plain names, which are
    judged by their leases alone.
    """

    @pytest.fixture
    def store(self, opened: Opened) -> JournalStore:
        return opened()

    def test_entries_come_back_in_order(self, store: JournalStore) -> None:
        store.renew("a")
        assert store.append("a", [*entries("r", 0, 1), *entries("s", 0)]) == frozenset()
        assert store.append("a", entries("r", 2), durable=True) == frozenset()
        assert store.load("r") == ['"0"', '"1"', '"2"']
        assert store.load("s") == ['"0"']
        assert store.load("unknown") == []

    def test_texts_come_back_as_they_were(self, store: JournalStore) -> None:
        body = '{"text": "\\u0000 \U0001f600 \\ud800 \' \\" %s $1"}'
        store.append("a", [Entry("r", 0, body)])
        assert store.load("r") == [body]

    def test_a_batch_can_be_sent_again(self, store: JournalStore) -> None:
        batch = entries("r", 0, 1)
        store.append("a", batch)
        assert store.append("a", [*batch, *entries("r", 2)]) == frozenset()
        assert store.append("a", entries("r", 1, body='"other"')) == frozenset()
        assert store.load("r") == ['"0"', '"1"', '"2"']

    def test_entries_behind_a_gap_cannot_be_read(self, store: JournalStore) -> None:
        store.append("a", entries("r", 0, 1, 3, 4))
        assert store.load("r") == ['"0"', '"1"', "", ""]

    def test_only_the_owner_adds_to_a_run(self, store: JournalStore) -> None:
        store.renew("a")
        store.append("a", entries("r", 0))
        assert store.append("b", [*entries("r", 1), *entries("mine", 0)]) == {"r"}
        assert store.append("b", entries("r", 0, 1)) == {"r"}
        assert store.load("r") == ['"0"']
        assert store.load("mine") == ['"0"']

    def test_a_run_begins_with_its_first_entry(self, store: JournalStore) -> None:
        assert store.append("a", entries("r", 1)) == {"r"}
        assert store.load("r") == []

    def test_nothing_is_added_to_a_run_that_was_deleted(self, store: JournalStore) -> None:
        store.append("a", entries("r", 0, 1))
        store.delete("a", ["r", "unknown"])
        assert store.load("r") == []
        assert store.append("a", entries("r", 2)) == {"r"}
        assert store.load("r") == []

    def test_only_the_owner_deletes_a_run(self, store: JournalStore) -> None:
        store.append("a", entries("r", 0))
        store.delete("b", ["r"])
        assert store.load("r") == ['"0"']

    def test_runs_of_the_living_are_not_left_behind(self, opened: Opened) -> None:
        here, there = opened(), opened()
        here.renew("a")
        here.append("a", entries("r", 0))
        assert there.left_behind() == []
        assert not there.claim("r", "b")
        assert here.claim("r", "a"), "it is a's already"

    def test_runs_are_claimed_when_the_lease_has_run_out(self, opened: Opened) -> None:
        here, there = opened(), opened()
        here.renew("a", seconds=0.0)
        here.append("a", entries("r", 0))
        here.append("a", entries("s", 0))
        there.renew("b")
        assert there.left_behind() == ["r", "s"]
        assert there.claim("r", "b")
        assert there.left_behind() == ["s"]
        assert here.append("a", entries("r", 1)) == {"r"}, "a comes back too late"
        assert there.append("b", entries("r", 1)) == frozenset()
        assert here.load("r") == ['"0"', '"1"']
        assert not there.claim("unknown", "b")

    def test_an_owner_without_any_lease_has_left_its_runs(self, store: JournalStore) -> None:
        store.append("a", entries("r", 0))
        assert store.left_behind() == ["r"]

    def test_an_owner_that_leaves_lets_others_claim_at_once(self, opened: Opened) -> None:
        here, there = opened(), opened()
        here.renew("a")
        here.append("a", entries("r", 0))
        here.leave("a")
        assert there.left_behind() == ["r"]
        here.renew("a")
        assert there.left_behind() == []

    def test_an_owner_that_renews_in_time_keeps_its_runs(self, opened: Opened) -> None:
        here, there = opened(), opened()
        here.renew("a", seconds=0.0)
        here.append("a", entries("r", 0))
        here.renew("a")
        assert not there.claim("r", "b")
        assert here.append("a", entries("r", 1)) == frozenset()

    def test_one_of_many_claims_wins(self, opened: Opened) -> None:
        stores = {f"owner {number}": opened() for number in range(4)}
        for owner, store in stores.items():
            store.renew(owner)
        runs = [f"r{number}" for number in range(8)]
        stores["owner 0"].append("gone", [entry for run in runs for entry in entries(run, 0)])

        def claimed(owner: str) -> list[str]:
            return [run for run in runs if stores[owner].claim(run, owner)]

        with ThreadPoolExecutor(len(stores)) as threads:
            won = [run for each in threads.map(claimed, stores) for run in each]
        assert sorted(won) == runs

    def test_the_oldest_runs_go_when_there_are_too_many(self, store: JournalStore) -> None:
        for number in range(5):
            store.append("a", entries(f"r{number}", 0, 1))
        assert store.sweep(Bounds(max_runs=3)) == ["r0", "r1"]
        assert store.load("r1") == []
        assert store.load("r2") == ['"0"', '"1"']

    def test_the_oldest_runs_go_when_they_are_too_large(self, store: JournalStore) -> None:
        for number in range(4):
            store.append("a", entries(f"r{number}", 0, body='"' + 98 * "x" + '"'))
        assert store.sweep(Bounds(max_bytes=250)) == ["r0", "r1"]
        assert store.sweep(Bounds(max_bytes=250)) == []

    def test_runs_that_were_not_used_for_long_go(self, store: JournalStore) -> None:
        store.append("a", entries("r", 0))
        assert store.sweep(Bounds(max_age_seconds=3600.0)) == []
        assert store.sweep(Bounds(max_age_seconds=-1.0)) == ["r"]

    def test_a_run_that_is_released_can_be_claimed(self, opened: Opened) -> None:
        here, there = opened(), opened()
        here.renew("a")
        there.renew("b")
        here.append("a", [*entries("r", 0), *entries("s", 0)])
        there.release("b", "r")  # it is not b's
        assert not there.claim("r", "b")
        here.release("a", "r")
        assert there.claim("r", "b") and not there.claim("s", "b")
        assert here.append("a", entries("r", 1)) == {"r"}
        assert there.append("b", entries("r", 1)) == frozenset()

    def test_runs_are_listed_the_last_written_first(self, store: JournalStore) -> None:
        assert store.runs() == []
        store.renew("a")
        store.append("a", [*entries("r", 0), *entries("s", 0)])
        store.append("a", entries("r", 1))
        store.release("a", "s")
        listed = {each.id: each for each in store.runs()}
        assert set(listed) == {"r", "s"}
        assert listed["r"].is_held and not listed["s"].is_held
        assert all(each.began <= each.written for each in listed.values())
        written = [each.written for each in store.runs()]
        assert written == sorted(written, reverse=True)

    def test_a_store_opens_again_after_it_was_closed(self, store: JournalStore) -> None:
        store.append("a", entries("r", 0))
        store.close()
        assert store.load("r") == ['"0"']
        store.close()
