"""Loads of KV from the host, for resumed requests and for requests with the same prefix.

A load of at most `in_step_blocks` joins the step that needs it, layer by layer. The planner splits
a longer load over several steps, as the budget allows; its request waits meanwhile.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from caesura.scheduler.vllm.swap.host import HostStore, Key
from caesura.scheduler.vllm.swap.messages import Load, SwapOrders


@dataclass(slots=True)
class _Loading:
    keys: list[Key]
    blocks: list[int]
    sent: int = 0
    called_off: bool = False


@dataclass
class Loads:
    """Plans the loads of one scheduler; `in_step` allows them to join their step."""

    store: HostStore
    in_step: bool
    block_size: int = 1
    in_step_blocks: int = 0
    _matched: dict[str, tuple[int, list[Key]]] = field(default_factory=dict)
    _loading: dict[str, _Loading] = field(default_factory=dict)
    _in_step: list[tuple[list[Key], Load]] = field(default_factory=list)
    _in_flight: deque[list[tuple[list[Key], Load]]] = field(default_factory=deque)
    _loaded: dict[str, int] = field(default_factory=dict)
    distrusted: list[Key] = field(default_factory=list)
    """Keys that lost their copy since the planner last cleared this list."""

    def match(self, request_id: str, keys: Sequence[Key], computed: int) -> tuple[int, bool]:
        """Return how many tokens after `computed` can be loaded, and whether over several steps.

        `keys` are those of the full blocks that the request need not compute.
        """
        self._matched.pop(request_id, None)
        first, blocks = self._found(keys, computed)
        if not blocks:
            return 0, False
        self._matched[request_id] = (first, list(keys[first : first + blocks]))
        return blocks * self.block_size, not self._joins(blocks)

    def takes_steps(self, keys: Sequence[Key], computed: int) -> bool:
        """Return whether `match` would find a load over several steps, without keeping it."""
        _, blocks = self._found(keys, computed)
        return blocks > 0 and not self._joins(blocks)

    def _found(self, keys: Sequence[Key], computed: int) -> tuple[int, int]:
        """Return the first block after the computed tokens, and how many blocks have copies."""
        first = end = computed // self.block_size
        while end < len(keys) and self.store.slot_of(keys[end]) is not None:
            end += 1
        return first, end - first

    def _joins(self, blocks: int) -> bool:
        return self.in_step and blocks <= self.in_step_blocks

    def allocated(self, request_id: str, block_ids: Sequence[int], tokens: int) -> None:
        """Start the load that `match` found, into the blocks allocated for the request."""
        first, keys = self._matched.pop(request_id, (0, []))
        if not tokens:
            return
        keys = keys[: tokens // self.block_size]
        blocks = list(block_ids[first : first + len(keys)])
        self._loaded[request_id] = len(keys) * self.block_size
        self.store.want(keys)
        if self._joins(len(keys)):
            self.in_step_blocks -= len(keys)
            load = Load(request_id, blocks, self._slots(keys), in_step=True, last=True)
            self._in_step.append((keys, load))
        else:
            self._loading[request_id] = _Loading(keys, blocks)

    def call_off(self, request_id: str) -> None:
        """Cancel what has not been sent of the loads of a request that has ended."""
        self._matched.pop(request_id, None)
        self._loaded.pop(request_id, None)
        loading = self._loading.get(request_id)
        if loading is not None:
            loading.called_off = True

    def order(self, orders: SwapOrders, left: int, computes: bool) -> int:
        """Add the step's loads to its orders; return the rest of the budget, in blocks."""
        for _, load in self._in_step:
            orders.loads.append(load)
            left -= len(load.blocks)
        if computes:
            self._in_flight.append(self._in_step)
            self._in_step = []
        return self._pieces(orders, left)

    def _pieces(self, orders: SwapOrders, left: int) -> int:
        for request_id, loading in self._loading.items():
            if loading.sent > len(loading.blocks):
                continue  # the last piece was sent
            end = loading.sent + max(0, left)
            if not orders.loads and left <= 0:
                end = loading.sent + 1  # a request waits, so every step loads at least a block
            if loading.called_off:
                end = loading.sent
            part = slice(loading.sent, end)
            blocks = loading.blocks[part]
            last = loading.called_off or loading.sent + len(blocks) >= len(loading.blocks)
            if not blocks and not last:
                continue
            slots = self._slots(loading.keys[part])
            orders.loads.append(Load(request_id, blocks, slots, in_step=False, last=last))
            left -= len(blocks)
            loading.sent = len(loading.blocks) + 1 if last else loading.sent + len(blocks)
        return left

    def step_done(self, invalid_blocks: set[int]) -> None:
        """Release the loads that joined the oldest step; drop copies of `invalid_blocks`."""
        if not self._in_flight:
            return
        for keys, load in self._in_flight.popleft():
            self.store.unwant(keys)
            if invalid_blocks:
                bad = zip(keys, load.blocks, strict=True)
                self._distrust(key for key, block in bad if block in invalid_blocks)

    def take_loaded(self, request_id: str) -> int:
        """Return, once, how many tokens were loaded for a request that now runs."""
        return self._loaded.pop(request_id, 0)

    def received(self, request_ids: Iterable[str], failed: Iterable[str]) -> None:
        """Release loads over several steps that have ended; drop the copies of failed ones."""
        failed = set(failed)
        for request_id in dict.fromkeys([*request_ids, *sorted(failed)]):
            loading = self._loading.pop(request_id, None)
            if loading is None:
                continue
            self.store.unwant(loading.keys)
            if request_id in failed:
                self._loaded.pop(request_id, None)
                self._distrust(loading.keys)

    def _distrust(self, keys: Iterable[Key]) -> None:
        """Drop copies that could not be read, except those that another load still reads.

        A request with the same prefix may be reading them; its load succeeds or fails by itself.
        """
        read = self.keys_being_read
        lost = [key for key in keys if key not in read]
        self.store.forget(lost)
        self.distrusted += lost

    @property
    def busy(self) -> bool:
        """Whether a load is under way."""
        return bool(self._loading or self._in_step)

    @property
    def under_way(self) -> dict[str, int]:
        """The ids of requests that wait for a load over several steps, with its blocks."""
        return {request_id: len(load.blocks) for request_id, load in self._loading.items()}

    @property
    def unfilled_blocks(self) -> int:
        """Number of blocks that are allocated to loads over several steps in progress."""
        return sum(len(load.blocks) for load in self._loading.values())

    @property
    def keys_being_read(self) -> set[Key]:
        """The keys of copies that must keep their slots, since a load reads them."""
        read = {key for loading in self._loading.values() for key in loading.keys}
        read |= {key for keys, _ in self._in_step for key in keys}
        return read | {key for step in self._in_flight for keys, _ in step for key in keys}

    def _slots(self, keys: Iterable[Key]) -> list[int]:
        """Return the slots of confirmed copies."""
        slots = [self.store.slot_of(key) for key in keys]
        assert None not in slots, "a copy that is being read was reused"
        return slots  # type: ignore[return-value]
