"""A fake link to fake host memory: it executes the connector's orders late, or fails."""

import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from vllm.v1.outputs import KVConnectorOutput

from caesura.scheduler.vllm.engine.swap.messages import Load, Save, SwapOrders, SwapReport

from .layouts import Content, Memory


@dataclass
class FakeLink:
    """Copies between the device's memory and the host's, `pace` blocks per step.

    `fails` decides whether an order fails; so does `refuses`, which is shown the order. `corrupts`
    leaves out what a load should copy, for the control that must notice.
    """

    memory: Memory
    pace: Callable[[], int] = lambda: 1000
    fails: Callable[[], bool] = lambda: False
    refuses: Callable[[Load | Save], bool] = lambda order: False
    corrupts: bool = False
    host: dict[int, Content] = field(default_factory=dict)
    loaded: int = 0
    saved: int = 0
    failures: int = 0
    _queue: deque[Load | Save] = field(default_factory=deque)
    _broken: set[str] = field(default_factory=set)
    _invalid: set[int] = field(default_factory=set)

    def begin(self, orders: SwapOrders) -> None:
        """Before the forward pass: what joins the step is copied now."""
        for load in orders.loads:
            if not load.in_step:
                self._queue.append(load)
            elif self.fails() or self.refuses(load):
                self.failures += 1
                self._invalid.update(load.blocks)
            else:
                self._copy_in(load)
        self._queue.extend(orders.saves)

    def end(self) -> KVConnectorOutput:
        """After it: go on with what runs beside steps, and report."""
        output = KVConnectorOutput(finished_recving=set())
        report = SwapReport()
        left = self.pace()
        while self._queue and left >= 0:
            order = self._queue.popleft()
            left -= max(1, len(order.blocks))
            failed = bool(order.blocks) and (self.fails() or self.refuses(order))
            self.failures += failed
            if isinstance(order, Save):
                if not failed:
                    self._copy_out(order)
                (report.failed if failed else report.saved)[order.job] = 1
                continue
            if failed:
                self._broken.add(order.request_id)
            elif order.request_id not in self._broken:
                self._copy_in(order)
            if order.last:
                assert output.finished_recving is not None
                output.finished_recving.add(order.request_id)
                if order.request_id in self._broken:
                    self._broken.discard(order.request_id)
                    output.failed_recving.add(order.request_id)
        output.kv_connector_worker_meta = report
        output.invalid_block_ids, self._invalid = self._invalid, set()
        return output

    def spoiled(self, blocks: Iterable[int]) -> bool:
        """Whether a load into these blocks failed in the step that they belong to."""
        return not self._invalid.isdisjoint(blocks)

    def _copy_out(self, order: Save) -> None:
        for block, slot in zip(order.blocks, order.slots, strict=True):
            self.saved += 1
            self.host[slot] = self.memory.read(block)

    def _copy_in(self, order: Load) -> None:
        for block, slot in zip(order.blocks, order.slots, strict=True):
            self.loaded += 1
            self.memory.write(block, {} if self.corrupts else self.host[slot])


def random_pace(rng: random.Random) -> Callable[[], int]:
    """A link that is now idle, now slow, now fast."""
    return lambda: rng.choice((-1, 0, 1, 2, 5, 100))
