"""Blocks of other sizes than 16 tokens: nothing is lost, and only whole blocks are found again."""

import mmap
from dataclasses import replace

import pytest

from caesura.simulator.engine import simulate
from caesura.simulator.engine.layout import kv_spec
from caesura.simulator.engine.transfer import connector_config
from caesura.simulator.policy import POLICIES
from tests.simulator.simulated import (
    OFFLOAD,
    STOCK,
    SWAP,
    SWAPPED,
    crowd,
    first_computations,
    machine,
    plain,
    session,
    workload,
)


@pytest.mark.parametrize("name", ["caesura", "stock", "stock-offload", "swap", "infercept"])
def test_blocks_of_32_tokens_lose_nothing(name: str) -> None:
    work = crowd(0)
    small = machine(blocks=30, host_blocks=50, blocks_per_second=250, block_tokens=32)
    run = simulate(work, small, POLICIES[name], check=True)
    totals = run.totals
    assert [one.key for one in run.sessions if one.ended] == [one.key for one in work.sessions]
    assert totals.prefill_tokens + totals.decode_tokens == first_computations(work)
    assert totals.recompute_tokens == sum(one.recomputed_tokens for one in run.sessions)
    loaded = [one.loaded_tokens for one in run.sessions]
    assert not any(tokens % 32 for tokens in loaded)
    assert totals.loaded_blocks >= sum(loaded) // 32
    assert totals.total_block_seconds == pytest.approx(30 * totals.seconds)


@pytest.mark.parametrize("name", ["stock", "stock-offload"])
def test_prefixes_are_found_by_whole_blocks(name: str) -> None:
    def found(block_tokens: int) -> list[int]:
        made = machine(blocks=1600 // block_tokens, block_tokens=block_tokens)
        run = simulate(crowd(1), made, POLICIES[name])
        return [one.cached_tokens for one in run.sessions]

    assert any(found(32)) and not any(tokens % 32 for tokens in found(32))
    assert any(tokens % 32 for tokens in found(16))


@pytest.mark.parametrize(("block_tokens", "cached"), [(16, 48), (32, 32), (7, 56), (1, 62)])
def test_what_is_found_of_a_session_by_hand(block_tokens: int, cached: int) -> None:
    one = session("one", (60, 3, 1.0), (5, 2))
    made = machine(blocks=1600 // block_tokens, block_tokens=block_tokens)
    (found,) = simulate(workload(one), made, STOCK, check=True).sessions
    # Of the 62 tokens that have KV, those in full blocks are found again.
    assert (found.cached_tokens, found.recomputed_tokens) == (cached, 62 - cached)


@pytest.mark.parametrize(("block_tokens", "shared"), [(16, 48), (32, 32), (64, 0)])
def test_of_a_shared_prefix_whole_blocks_are_shared(block_tokens: int, shared: int) -> None:
    same = {"shared_name": "system", "shared_tokens": 60}
    work = workload(session("one", (200, 2), **same), session("two", (200, 2), arrival=1.0, **same))
    run = simulate(work, machine(block_tokens=block_tokens), STOCK, check=True)
    assert [one.cached_tokens for one in run.sessions] == [0, shared]


def test_what_is_swapped_in_blocks_of_32_tokens() -> None:
    run = simulate(SWAPPED, machine(blocks=20, block_tokens=32), SWAP, check=True)
    one, _, two = run.sessions
    # 161 and 339 tokens had KV: five and ten full blocks. What is behind them is computed again.
    assert (one.loaded_tokens, one.recomputed_tokens) == (160, 1)
    assert (two.loaded_tokens, two.recomputed_tokens) == (320, 19)
    assert run.totals.saved_blocks == run.totals.loaded_blocks == 5 + 10


def test_a_larger_block_takes_the_link_longer() -> None:
    """Five blocks of 32 tokens go at the pace of ten of 16."""

    def waited(block_tokens: int) -> float:
        made = machine(blocks=640 // block_tokens, block_tokens=block_tokens)
        slow = replace(made, link_bytes=200 * 16 * made.kv_bytes)
        sent, first, _ = simulate(SWAPPED, slow, SWAP, check=True).sessions[0].segments[1]
        return first - sent

    assert waited(32) == pytest.approx(waited(16), abs=0.0011)
    assert waited(32) == pytest.approx(0.050, abs=0.0011)


@pytest.mark.parametrize("block_tokens", [16, 32, 512, 513, 4096])
def test_the_host_holds_as_many_blocks_whatever_their_size(block_tokens: int) -> None:
    """vLLM's own connector gives each block whole pages; the tiny model's tokens take 8 bytes."""
    config = connector_config(10, kv_spec(block_tokens).page_size_bytes, OFFLOAD)
    assert config is not None
    pages = -(-8 * block_tokens // mmap.PAGESIZE)
    assert config.kv_connector_extra_config["cpu_bytes_to_use"] == 10 * pages * mmap.PAGESIZE


def test_a_result_says_how_large_blocks_are() -> None:
    made = machine(blocks=50, host_blocks=20, block_tokens=32)
    settings = plain(simulate(SWAPPED, made, SWAP))["settings"]
    assert settings["machine"]["block_tokens"] == 32
    assert (settings["blocks"], settings["host_blocks"]) == (50, 20)


def test_only_whole_blocks_of_the_cache_count() -> None:
    work, made = workload(session("one", (100, 10))), machine(blocks=4, block_tokens=32)
    assert simulate(work, made, STOCK).sessions[0].ended
    with pytest.raises(ValueError, match="110 tokens does not fit into the 3 blocks of 32 tokens"):
        simulate(work, replace(made, kv_tokens=4 * 32 - 1), STOCK)
