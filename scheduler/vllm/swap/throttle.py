"""A copier whose link is limited, for experiments and for a link that must be left to others.

The limit acts on real copies: a copy counts as done when a link of that rate would have carried
it. So the scheduler measures, learns and reacts as it does with a slow link.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import isfinite
from typing import Any

from caesura.scheduler.vllm.swap.copier import Copier, Task
from caesura.scheduler.vllm.swap.regions import Layer
from caesura.scheduler.vllm.swap.threads import ThreadCopier

LINK_KEY = "link_gb_per_second"
BACK_TO_BACK_SECONDS = 0.001
"""A copy that begins this soon after another began when that one ended: sleeps last too long."""


class ThrottledCopier(ThreadCopier):
    """Copies at most `bytes_per_second`, in both directions together."""

    def __init__(
        self,
        layers: Sequence[Layer],
        slots: int,
        bytes_per_second: float,
        clock: Callable[[], float] = time.perf_counter,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        """Create it; `clock` returns seconds, and `wait` blocks the copying thread for some."""
        self._bytes_per_second = bytes_per_second
        self._free_at = 0.0
        self._closing = threading.Event()
        self._wait = wait or self._closing.wait
        super().__init__(layers, slots, clock)

    def copy(self, layer: int, task: Task) -> None:
        """Copy the task's blocks in one layer, then wait until the link would have carried them."""
        now = self._clock()
        begun = self._free_at if 0 <= now - self._free_at < BACK_TO_BACK_SECONDS else now
        super().copy(layer, task)
        size = self.block_bytes[layer] * len(task.order.blocks)
        self._free_at = begun + size / self._bytes_per_second
        left = self._free_at - self._clock()
        if left > 0:
            self._wait(left)

    def close(self) -> None:
        """Stop the thread, without waiting for the link."""
        self._closing.set()
        super().close()


def throttled(
    options: Mapping[str, Any], on_cpu: bool
) -> Callable[[Sequence[Layer], int], Copier] | None:
    """Return what makes a throttled copier if the connector's options limit the link, else None.

    Raises `ValueError` for a limit that is no positive number, and for one on a GPU, whose copy
    engines cannot be limited.
    """
    given = options.get(LINK_KEY)
    if given is None:
        return None
    number = isinstance(given, int | float) and not isinstance(given, bool)
    if not number or not isfinite(given) or given <= 0:
        raise ValueError(
            f"{LINK_KEY} must be a number above 0, in 10^9 bytes per second, got {given!r}"
        )
    if not on_cpu:
        raise ValueError(
            f"{LINK_KEY} limits copies of a KV cache in main memory only; leave it out on a GPU,"
            f" got {given!r}"
        )
    return partial(ThrottledCopier, bytes_per_second=given * 1e9)
