"""What the views show is what the records say."""

from collections.abc import AsyncIterator
from math import isnan
from typing import Any

import pytest

from caesura.scheduler.records import parse
from caesura.scheduler.records.accuracy import accuracies
from caesura.scheduler.records.outcomes import Outcomes
from tests.kit.browser import Open, Shown

from . import recordings as made
from .reading import about, amount, cells, listed, plain

COVERED = "[data-testid=accuracy-decode_tokens-hazard] td.num"
DECISION = "#/decision/{request}/{at}"


@pytest.fixture
async def shown(open_page: Open, exported: Any) -> AsyncIterator[Shown]:
    """The recording by hand, and one in which everything went well."""
    smooth = {"cost": 6.13, "regret": 0.0, "hindsight": made.SEARCH["prices"]}
    better = [
        entry | smooth if entry["kind"] == "pause" else entry
        for entry in made.entries()
        if entry["kind"] != "opening"
    ]
    url = exported(
        (made.recording(1, "as it was"), made.entries()),
        (made.recording(2, "as it could be"), better),
    )
    yield await open_page(f"{url}#/timeline")


async def decision(shown: Shown, known: dict[str, Any]) -> None:
    await shown.view(DECISION.format(request=known["request"], at=known["at"]))
    await shown.says(known["tool"], within="main h2")
    await shown.says(known["request"], within="main")


async def prices(shown: Shown) -> dict[str, list[float]]:
    """Each alternative's bars: the expected price, and the one in hindsight."""
    found = await shown.page.eval_on_selector_all(
        ".dc-price",
        "rows => rows.map(row => [row.querySelector('.dc-price-name').innerText,"
        " [...row.querySelectorAll('.num')].map(bar => bar.innerText)])",
    )
    return {name.split()[0].lower(): [amount(text) for text in bars] for name, bars in found}


async def test_a_decision_shows_prices_length_and_regret(shown: Shown) -> None:
    await decision(shown, made.SEARCH)
    pause = made.SEARCH_PAUSE
    assert await prices(shown) == {
        name: [about(pause["prices"][name]), about(pause["hindsight"][name])]
        for name in ("preserve", "discard", "swap")
    }
    chosen = await shown.text(".dc-chosen .dc-price-name")
    assert chosen.split()[0].lower() == pause["handling"]
    assert amount(await shown.text(".dc-verdict b")) == about(pause["regret"])
    cost = (await shown.text(".dc-verdict")).split("cost")[1]
    assert amount(cost.split(";")[0]) == about(pause["cost"])
    lengths = [amount(text) for text in await texts(shown, ".dc-length .num")]
    assert lengths == [about(pause["predicted_seconds"]), about(pause["pause_seconds"])]


async def test_a_decision_shows_all_that_the_handling_saw(shown: Shown) -> None:
    await decision(shown, made.SEARCH)
    figures = await listed(shown.page, ".dc-figures")
    numbers = sorted(amount(value) for value in figures.values() if any(map(str.isdigit, value)))
    known = [float(value) for value in made.INPUTS.values() if not isinstance(value, bool)]
    for value in known:
        assert about(value) in numbers, f"{value} is not shown: {figures}"
    assert figures["Swapping pays"] == "yes"
    pause = made.SEARCH_PAUSE
    assert amount(figures["Tokens loaded"].split("(")[0]) == pause["loaded_tokens"]
    assert amount(figures["Tokens recomputed"].split("(")[0]) == pause["recomputed_tokens"]
    assert amount(figures["Queued"]) == about(pause["queue_seconds"])
    assert amount(figures["Context"]) == pause["context_tokens"]
    assert amount(figures["Blocks of its own"]) == pause["blocks"]


async def test_a_decision_shows_what_was_done_and_why(shown: Shown) -> None:
    await decision(shown, made.SEARCH)
    rows = await cells(shown.page, ".dc-card table tbody tr")
    done = [(amount(after), int(blocks)) for after, _, blocks, _ in rows]
    assert done == [(row[0], row[2]) for row in made.SEARCH_PAUSE["decisions"]]
    assert all("swap" in what for _, what, _, _ in rows)
    assert [why for *_, why in rows] == [
        "the policy decided so in this step",
        "running requests needed blocks",
    ]


async def test_what_was_impossible_has_no_price(shown: Shown) -> None:
    await decision(shown, made.ASKED)
    found = await prices(shown)
    assert found["swap"] == []
    assert found["preserve"] == [about(910.0), about(80.0)]
    await shown.says("Waited for a person", within="main h2")


async def test_an_open_pause_has_prices_and_no_regret(shown: Shown) -> None:
    await decision(shown, made.CALCULATED)
    assert await prices(shown) == {
        name: [about(price)] for name, price in made.CALCULATED["prices"].items()
    }
    await shown.says("This pause is open", within=".dc-verdict")


async def test_a_decision_tells_why_the_request_waited(shown: Shown) -> None:
    await shown.view(f"#/timeline?sel={made.D}")
    wait = made.WAIT
    await shown.says("lacked free KV blocks in 37 steps of 41", within=".dc-wait")
    await shown.says("in 2 steps of 41", within=".dc-wait")
    text = plain(await shown.text(".dc-wait"))
    assert amount(await shown.text(".dc-wait b")) == about(wait["until"] - wait["since"])
    assert f"needed {wait['needed_blocks']} blocks, {wait['free_blocks']} were free" in text
    await shown.page.click(".dc-wait button")
    rows = await cells(shown.page, ".dc-holders tbody tr")
    # Between 3 and 7 s: b decodes with 20 blocks for 1 s, holds them paused for 1 s; a holds
    # 13 for 0.5 s, 5 for 0.25 s, 1 for 2.25 s, none while it waits, 13 for 0.5 s, 16 for 0.1 s.
    shares = {row[0]: amount(row[4]) for row in rows}
    held = {made.B: 20 * 2, made.A: 13 * 0.5 + 5 * 0.25 + 1 * 2.25 + 13 * 0.5 + 16 * 0.1}
    assert set(shares) == set(held)
    for request, block_seconds in held.items():
        assert shares[request] == pytest.approx(block_seconds / sum(held.values()), abs=0.006)


async def test_the_list_of_decisions_adds_up(shown: Shown) -> None:
    await shown.view("#/decision")
    await shown.says("3 pauses, 1 open", within="main")
    names = await shown.page.locator(".dc-all td:first-child").all_inner_texts()
    assert all(tool in " ".join(names) for tool in ("search", "ask_user")), "not by their ids"
    rows = {row[0]: row for row in await cells(shown.page, ".dc-all tbody tr")}
    for pause in (made.SEARCH_PAUSE, made.ASKED_PAUSE):
        row = rows[pause["request"]]
        assert row[2] == pause["tool"]
        assert amount(row[3]) == about(pause["predicted_seconds"])
        assert amount(row[4]) == about(pause["pause_seconds"])
        assert row[6].startswith(made.D[:6])
        assert ("and 6 more" in row[6]) == (pause["wanted_requests"] == 7)
        assert amount(row[7]) == about(pause["cost"])
        assert amount(row[8]) == about(pause["regret"])
    assert rows[made.C][4] == "open"
    total = made.SEARCH_PAUSE["regret"] + made.ASKED_PAUSE["regret"]
    assert amount((await shown.text("main")).split("regret")[1]) == about(total)


async def test_memory_shows_each_step_as_it_was_recorded(shown: Shown) -> None:
    await shown.view("#/memory")
    surface = shown.page.locator("[data-testid=memory-surface]")
    await surface.focus()
    steps = made.steps()
    for row in (0, 7, 14, 15, 27, 34, 39):
        # The values under the pointer are those of the step that is made there.
        box = await surface.bounding_box()
        share = (steps["at"][row] + 0.1 - made.BEGAN) / (steps["at"][-1] + 0.3 - made.BEGAN)
        await shown.page.mouse.move(box["x"] + share * box["width"] * 0.985, box["y"] + 40)
        await shown.says(f"step {row + 1} of 40", within="[data-testid=memory-moment]")
        for column in steps:
            if column in ("kind", "at", "seconds"):
                continue
            value = steps[column][row]
            if column == "free_blocks":
                value -= steps["cached_blocks"][row]
            cell = shown.page.locator(f"[data-testid=value-{column}]")
            assert amount(await cell.inner_text()) == value, (row, column)


async def test_memory_tells_the_values_at_its_right_edge(shown: Shown) -> None:
    steps = made.steps()
    row = next(row for row, tokens in enumerate(steps["decode_tokens"]) if row > 8 and tokens)
    cell = shown.page.locator("[data-testid=value-decode_tokens]")
    for after, tokens in ((0.1, steps["decode_tokens"][row]), (0.23, 0)):
        # A step takes 0.2 s; behind it nothing is decoded until the next.
        until = steps["at"][row] + after
        await shown.view(f"#/memory?t0={until - 1}&t1={until}")
        await shown.says("right edge", within="[data-testid=memory-moment]")
        assert amount(await cell.inner_text()) == tokens


async def test_tools_shows_their_pauses_calls_and_failures(shown: Shown) -> None:
    await shown.view("#/tools")
    rows = {
        name: dict(zip(COLUMNS, cells_, strict=True))
        for name in ("search", "ask_user", "calculator", "weather")
        for cells_ in [await texts(shown, f"[data-testid=tool-{name}] td.num")]
    }
    for pause in (made.SEARCH_PAUSE, made.ASKED_PAUSE):
        row = rows[pause["tool"]]
        assert [row["pauses"], row["calls"], row["failed"]] == ["1", "1", "0"]
        assert amount(row["p50"]) == amount(row["p99"]) == about(pause["pause_seconds"])
        off = pause["predicted_seconds"] / pause["pause_seconds"]
        assert amount(row["bias"]) == about(off)
        assert amount(row["all_cost"]) == amount(row["cost"]) == about(pause["cost"])
        assert amount(row["regret"]) == about(pause["regret"])
        assert amount(row["paused"]) == about(pause["pause_seconds"])
    assert [rows["weather"][key] for key in ("pauses", "calls", "failed")] == ["0", "1", "1"]
    assert [rows["calculator"][key] for key in ("pauses", "p50")] == ["1", "–"]
    for handling, pause in (("swap", made.SEARCH_PAUSE), ("discard", made.ASKED_PAUSE)):
        ((_, count, cost, regret, _),) = await cells(
            shown.page, f"[data-testid=handling-{handling}]"
        )
        assert count == "1"
        assert amount(cost) == about(pause["cost"])
        assert amount(regret) == about(pause["regret"])
    ((_, failed, share),) = await cells(shown.page, "[data-testid=failure-timeout]")
    assert (failed, amount(share)) == ("1", about(1 / 4))


COLUMNS = (
    *("pauses", "calls", "failed", "own50", "p50", "p90", "p99"),
    *("bias", "within", "all_cost", "cost", "regret"),
    *("result_tokens", "recomputed", "engine", "queued", "paused"),
)


async def test_a_session_shows_its_turns_and_its_time(shown: Shown) -> None:
    await shown.view("#/session/conversation-a")
    turns = [plain(text) for text in await texts(shown, "[data-testid=turn]")]
    assert len(turns) == 2
    for turn, (given, decoded, cached) in zip(turns, ((150, 49, 0), (41, 60, 199)), strict=True):
        assert f"{given} tokens in" in turn
        assert f"{decoded} out" in turn and f"{cached} cached" in turn
        assert "first output 512 ms" in turn
    chip = plain(await shown.text("[data-testid=pause-chip]"))
    assert amount(chip.split("regret")[1]) == about(made.SEARCH_PAUSE["regret"])
    assert amount(chip.split("search")[1].split("KV")[0]) == about(4.0)
    for state, seconds in {"waiting": 0.6, "decode": 3.6, "paused": 1.5, "offloaded": 2.5}.items():
        said = await shown.text(f"[data-testid=state-{state}]")
        assert amount(said.replace(state, "")) == about(seconds)
    await shown.page.click("[data-testid=pause-chip]")
    await shown.says("Pause: search", within="main h2")
    assert f"/decision/{made.A}/" in shown.page.url


async def test_compare_shows_figures_of_both(shown: Shown) -> None:
    await shown.view("#/compare?rec=1&with=2")
    await shown.page.wait_for_selector("[data-testid=headline]")
    steps = made.steps()
    # Without what tools took: a 9 - 4 s, b 9 - 4 s, d 6.5 s; c has not ended.
    expected = {
        "sessions": 3,
        "open": 1,
        "latency_mean": (5 + 5 + 6.5) / 3,
        "latency_p50": 5.0,
        "ttft_mean": (0.5 + 0.4 + 5.0) / 3,
        "waiting": (0.6 + 0.6 + 4.0) / 3,
        "swapping": 0.5 / 3,
        "recomputing": 0.5 / 3,
        "pauses": 3,
        "preserve": 0,
        "discard": 1,
        "swap": 1,
        "recomputed": sum(steps["recompute_tokens"]),
        "saved": sum(steps["saved_blocks"]),
        "loaded": sum(steps["loaded_blocks"]),
        "regret": made.SEARCH_PAUSE["regret"] + made.ASKED_PAUSE["regret"],
        "cost": made.SEARCH_PAUSE["cost"] + made.ASKED_PAUSE["cost"],
        "preemptions": 0,
    }
    for metric, value in expected.items():
        cell = shown.page.locator(f"[data-testid=metric-{metric}] [data-testid=a]")
        assert amount(await cell.inner_text()) == about(value), metric
    regret = shown.page.locator("[data-testid=metric-regret]")
    assert amount(await regret.locator("[data-testid=b]").inner_text()) == 0
    assert "better" not in await regret.inner_text()


async def texts(shown: Shown, selector: str) -> list[str]:
    await shown.page.wait_for_selector(selector)
    return [plain(text) for text in await shown.page.locator(selector).all_inner_texts()]


async def test_predictions_are_compared_as_in_the_terminal(shown: Shown) -> None:
    await shown.view("#/predictions")
    rows = accuracies(Outcomes().add_all(parse(entry) for entry in made.entries()))
    assert len(rows) == 8
    for row in rows:
        found = await texts(shown, f"[data-testid=accuracy-{row.quantity}-{row.predictor}] td.num")
        assert plain(found[0]) == str(row.count)
        told = [row.predicted, row.actual, row.error, row.pair_accuracy, row.calibration_error]
        for text, value in zip(found[1:], told, strict=False):
            assert text == "–" if isnan(value) else amount(text) == about(value), row
    (tokens,) = (r for r in rows if (r.quantity, r.predictor) == ("decode_tokens", "hazard"))
    assert tokens.covered is not None
    assert amount((await texts(shown, COVERED))[-1]) == about(tokens.covered)
