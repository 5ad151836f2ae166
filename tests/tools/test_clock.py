from datetime import UTC, datetime, timedelta, timezone

import pytest

from caesura.tools import Dispatcher, Registry, ToolCall
from caesura.tools.calculator.tool import calculator
from caesura.tools.clock import clock, make_clock
from caesura.tools.errors import Permanent

NOON = datetime(2026, 11, 21, 13, 5, 33, tzinfo=UTC)
still = make_clock(now=lambda: NOON)


@pytest.mark.parametrize(
    ("zone", "text"),
    [
        ("UTC", "2026-11-21 13:05:33 UTC"),
        ("utc", "2026-11-21 13:05:33 UTC"),
        ("Europe/Paris", "2026-11-21 14:05:33 CET"),
        (" europe/paris ", "2026-11-21 14:05:33 CET"),
        ("America/Sao_Paulo", "2026-11-21 10:05:33 -03"),
        ("Asia/Tokyo", "2026-11-21 22:05:33 JST"),
        ("Asia/Kathmandu", "2026-11-21 18:50:33 +0545"),
    ],
)
def test_zones(zone, text):
    assert still(zone) == text


def test_utc_by_default():
    assert still() == "2026-11-21 13:05:33 UTC"


def test_summer_time_and_a_source_in_another_zone():
    west = timezone(timedelta(hours=-5))
    summer = make_clock(now=lambda: datetime(2026, 7, 1, 23, 0, tzinfo=west))
    assert summer("Europe/Paris") == "2026-07-02 06:00:00 CEST"


@pytest.mark.parametrize(
    ("zone", "hint"),
    [
        ("Paris", "; did you mean Europe/Paris"),
        ("Europe/Pariss", "; did you mean Europe/Paris"),
        ("US/New York", "; did you mean America/New_York"),
        ("qqqqqqqq", ""),
        ("", ""),
        ("../../etc/passwd", ""),
        ("/etc/localtime", ""),
        ("Europe", None),
        ("a\x00b", ""),
        ("x" * 100_000, ""),
    ],
)
def test_an_unknown_zone_names_the_form_and_up_to_three_near_ones(zone, hint):
    with pytest.raises(Permanent) as caught:
        still(zone)
    message = str(caught.value)
    form = f"unknown time zone {zone[:64]!r}; use an IANA name such as 'Europe/Paris'"
    assert message.startswith(form)
    told = message.removeprefix(form)
    assert told.count(",") <= 2
    if hint is not None:
        assert told.startswith(hint)
        assert bool(told) == bool(hint)


def test_the_machines_clock():
    before = datetime.now(UTC).replace(microsecond=0)
    told = datetime.strptime(clock(), "%Y-%m-%d %H:%M:%S %Z").replace(tzinfo=UTC)
    assert before <= told <= datetime.now(UTC)


async def test_built_in_tools_through_a_session():
    async with Dispatcher(Registry([calculator, clock])) as session:
        results = await session.run_all(
            [
                ToolCall("1", "calculator", '{"expression": "1/0"}'),
                ToolCall("2", "clock", '{"timezone": "Mars"}'),
                ToolCall("3", "clock", "{}"),
            ]
        )
    assert [result.error for result in results] == ["failed", "failed", None]
    assert results[0].content == "error: division by zero"
    assert results[1].content.startswith("error: unknown time zone 'Mars'")
    assert results[2].content.endswith(" UTC")


def test_the_tools_spec():
    function = clock.spec()["function"]
    assert function["name"] == "clock"
    assert function["parameters"]["properties"]["timezone"]["default"] == "UTC"
