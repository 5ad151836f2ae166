"""How many connections may be open, and whom a bound concerns."""

import pytest

from caesura.runtime.errors import UsageError
from caesura.runtime.server.http.sockets import ConnectionCounts, Place, SocketLimits, client_of


def test_one_address_cannot_take_the_places_of_others():
    counts = ConnectionCounts(10, 2, spare=1)
    assert [counts.enter("a") for _ in range(4)] == [
        Place.OPEN,
        Place.OPEN,
        Place.SPARE,
        Place.NONE,
    ]
    assert counts.enter("b") is Place.OPEN
    counts.leave("a", Place.OPEN)
    assert counts.enter("a") is Place.OPEN


def test_all_together_are_bounded():
    counts = ConnectionCounts(2, 2, spare=1)
    places = [counts.enter(name) for name in "abcd"]
    assert places == [Place.OPEN, Place.OPEN, Place.SPARE, Place.NONE]
    counts.leave("c", Place.SPARE)
    assert counts.enter("d") is Place.SPARE


def test_a_place_that_was_lent_is_back_once_its_connection_has_ended():
    counts = ConnectionCounts(1, 1, spare=1)
    ended = False
    assert counts.enter("a") is Place.OPEN
    counts.lend("a", lambda: ended)
    assert counts.enter("a") is Place.SPARE
    ended = True
    assert counts.enter("a") is Place.OPEN
    assert len(counts) == 1


@pytest.mark.parametrize(
    ("host", "client"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::"),
        ("fe80::1%eth0", "fe80::"),
        ("unix", "unix"),
    ],
)
def test_a_client_is_its_address_or_its_network(host, client):
    assert client_of(host) == client


@pytest.mark.parametrize(
    ("descriptors", "most"), [(None, 1000), (10_000, 1000), (1024, 896), (200, 100)]
)
def test_files_are_left_for_the_engine_and_the_tools(descriptors, most):
    assert SocketLimits(max_connections=1000).most_connections(descriptors) == most


def test_a_bound_must_be_positive():
    with pytest.raises(UsageError, match="write_seconds must be positive, got 0"):
        SocketLimits(write_seconds=0)
