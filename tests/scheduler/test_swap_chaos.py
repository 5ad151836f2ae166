"""The worker's side of swapping, at random: content that is known, and orders that are legal."""

import random
import time
from collections.abc import Iterable
from typing import Any

import pytest
import torch

from caesura.scheduler.vllm.engine.swap.messages import Load, Save
from caesura.scheduler.vllm.engine.swap.streams import StreamCopier
from caesura.scheduler.vllm.engine.swap.threads import ThreadCopier

from .copying import (
    BLOCKS,
    SLOTS,
    in_step,
    later,
    make_caches,
    make_worker,
    step,
)
from .gpu import Gpu


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("kind", ["thread", "queues", "cuda"])
def test_at_random(kind: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler that keeps to its side of the contract, and content that is known."""
    if kind == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    gpu = Gpu(seed)
    if kind == "queues":
        gpu.install(monkeypatch)
    copier = ThreadCopier if kind == "thread" else StreamCopier
    Chaos(
        seed, copier, "cuda" if kind == "cuda" else "cpu", gpu if kind == "queues" else None
    ).run()


class Chaos:
    """Numbered blocks: one is written anew once no order refers to it, a slot likewise."""

    def __init__(self, seed: int, copier: Any, device: str, gpu: Gpu | None) -> None:
        self.random, self.gpu = random.Random(seed), gpu
        self.caches = make_caches(device)
        self.worker = make_worker(self.caches, copier)
        self.written = 0
        self.block: dict[int, int] = {}  # what attention finds in it
        self.slot: dict[int, int] = {}
        self.saving: dict[int, Save] = {}
        self.loading: dict[str, Load] = {}
        self.busy: set[int] = set()  # blocks that this step fills

    def run(self) -> None:
        for number in range(80):
            self.step(number, forward=self.random.random() < 0.7)
        for number in range(60_000):
            self.step(-1, forward=False)
            if number >= 1000 and not self.saving and not self.loading:
                break
            if number >= 1000:
                time.sleep(0.001)  # a busy machine may stop the threads that copy
        if self.gpu is not None:
            self.gpu.advance(1 << 30)
        assert not self.saving
        assert not self.loading
        self.worker.shutdown()

    def some(self, among: Iterable[int], most: int = 4) -> list[int]:
        among = list(among)
        return self.random.sample(among, min(len(among), self.random.randrange(most + 1)))

    def fresh(self, count: int) -> list[int]:
        held = {block for order in self.saving.values() for block in order.blocks} | self.busy
        held |= {block for order in self.loading.values() for block in order.blocks}
        blocks = self.random.sample(range(BLOCKS), BLOCKS)
        blocks = [block for block in blocks if block not in held][:count]
        for block in blocks:
            self.block.pop(block, None)
        self.busy.update(blocks)
        return blocks

    def step(self, number: int, forward: bool) -> None:
        self.busy = set()
        orders = self.orders(number, forward) if number >= 0 else []
        writes = {block: self.number() for block in self.fresh(2 if forward else 0)}
        check = {
            b: n for b, n in self.block.items() if b in self.busy or self.random.random() < 0.3
        }

        def attend(name: str) -> None:
            cache = self.caches[name]

            def run() -> None:
                for block, content in writes.items():
                    cache[block].fill_(content)
                for block, content in check.items():
                    assert (cache[block] == content).all(), (name, block, content, cache[block])

            _ = self.gpu.compute.launch(run) if self.gpu is not None else run()

        results, bad, report = step(self.worker, *orders, forward=forward, seen=attend)
        assert not bad
        assert not results.failed_recving
        self.block |= writes
        for job in report.saved:
            del self.saving[job]
        for request in results.finished_recving:
            load = self.loading.pop(request)
            self.block |= {b: self.slot[s] for b, s in zip(load.blocks, load.slots, strict=True)}

    def number(self) -> int:
        self.written += 1
        return self.written % 250

    def orders(self, number: int, forward: bool) -> list[Save | Load]:
        orders: list[Save | Load] = []
        read = {slot for order in self.loading.values() for slot in order.slots}
        for name in (f"x{number}", f"y{number}"):
            slots = self.some(self.slot)
            blocks = self.fresh(len(slots))
            slots = slots[: len(blocks)]
            if forward and self.random.random() < 0.5:
                self.block |= {b: self.slot[s] for b, s in zip(blocks, slots, strict=True)}
                orders.append(in_step(blocks, slots))
            else:
                orders.append(later(name, blocks, slots))
                self.loading[name] = orders[-1]
                read.update(slots)
        written = {slot for order in self.saving.values() for slot in order.slots}
        slots = self.some(slot for slot in range(SLOTS) if slot not in read | written)
        blocks = self.some(self.block)
        count = min(len(slots), len(blocks))
        save = Save(number, blocks[:count], slots[:count])
        self.saving[number] = save
        self.slot |= {s: self.block[b] for b, s in zip(save.blocks, save.slots, strict=True)}
        return [*orders, save]
