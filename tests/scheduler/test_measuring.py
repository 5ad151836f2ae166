"""What is measured of an engine, and what is made of it."""

import pytest

from caesura.scheduler.vllm.client.measurement import (
    Copy,
    Limits,
    Load,
    loads,
    medians,
    rates_of,
    sizes,
)

SMALL = Limits(step=2048, sequences=128, context=2048, capacity=32_736)


def test_sizes_grow_up_to_the_largest() -> None:
    assert list(sizes(1, 40, 4)) == [1, 4, 16, 40]
    assert list(sizes(1, 4, 1.1)) == [1, 2, 3, 4]
    assert list(sizes(16, 16, 2)) == [16]
    assert list(sizes(16, 15, 2)) == []


@pytest.mark.parametrize(
    "limits",
    [
        SMALL,
        Limits(step=8192, sequences=1024, context=131_072, capacity=400_000),
        Limits(step=64, sequences=4, context=256, capacity=512),
        Limits(step=512, sequences=1, context=64, capacity=128),
    ],
)
@pytest.mark.parametrize("coarse", [False, True])
def test_what_is_measured_fits_the_engine(limits: Limits, coarse: bool) -> None:
    chosen = loads(limits, coarse)
    assert len(chosen) >= 6
    assert chosen == sorted(chosen, key=lambda load: load.work)
    for load in chosen:
        tokens = load.behind + load.prompt + load.decoded
        assert tokens < limits.context
        assert load.sequences * tokens <= limits.capacity
        assert load.sequences <= limits.sequences
        assert load.prompt >= 1


def test_chunks_and_batches_on_short_and_long_contexts() -> None:
    chosen = loads(SMALL, coarse=False)
    assert Load(1, 16, 1) in chosen
    assert any(load.prompt > 1000 and load.decoded == 1 for load in chosen)
    assert any(load.behind > 1000 for load in chosen)
    batches = [load for load in chosen if load.decoded > 1]
    assert {load.sequences for load in batches} >= {1, 2, 4, 8, 16, 32, 64, 128}
    assert max(load.sequences * load.prompt for load in batches) > 10_000


def test_one_hiccup_is_no_measurement() -> None:
    often = [(tokens, 100, 0.001 * tokens) for tokens in range(1, 21) for _ in range(3)]
    hiccups = [(5, 100, 9.0), (77, 100, 9.0)]
    assert medians([*often, *hiccups]) == [(t, 100, 0.001 * t) for t in range(1, 21)]
    # With little else there is no choice.
    assert (77, 100, 9.0) in medians(hiccups)


def test_rates_alone_and_beside() -> None:
    def copies(direction: str, rate: float, beside: float) -> list[Copy]:
        return [
            Copy(direction, n, 1e-4 + n / rate, beside * (1e-4 + n / rate))  # type: ignore[arg-type]
            for n in (32, 64, 256, 1024)
            for _ in range(2)
        ]

    measured = [
        *copies("out", 1e5, 0.0),
        *copies("out", 8e4, 0.9),
        *copies("in", 2e5, 0.1),
    ]
    out, into = rates_of(measured, "out"), rates_of(measured, "in")
    assert out.alone == pytest.approx(1e5) and out.beside == pytest.approx(8e4)
    assert out.error < 1e-6
    assert [copy[:2] for copy in out.copies] == [("out", n) for n in (32, 64, 256, 1024)]
    # Nothing was seen beside a forward pass: what it does alone is the best guess.
    assert into.alone == into.beside == pytest.approx(2e5)


def test_copies_that_tell_no_rate_by_their_sizes() -> None:
    flat = rates_of([Copy("out", 64, 0.001, 0.0), Copy("out", 64, 0.002, 0.0)], "out")
    assert flat.alone == pytest.approx(64 / 0.0015)
    nothing = rates_of([], "in")
    assert (nothing.alone, nothing.beside, nothing.copies) == (0.0, 0.0, ())
