"""Loading KV back from the host, for requests that come back and for whoever has the same prefix.

Within `in_step_blocks` a load joins the step that needs it, layer by layer; a longer one goes in
pieces over as many steps as the budget makes it, and the request waits.
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
    """The loads of one scheduler; `in_step` allows them to join their step."""

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
    """What has lost its copy since somebody took note."""

    def match(self, request_id: str, keys: Sequence[Key], computed: int) -> tuple[int, bool]:
        """Return how many tokens behind the `computed` first ones can be loaded, and if over steps.

        `keys` name the full blocks that the request may skip computing.
        """
        self._matched.pop(request_id, None)
        first, blocks = self._found(keys, computed)
        if not blocks:
            return 0, False
        self._matched[request_id] = (first, list(keys[first : first + blocks]))
        return blocks * self.block_size, not self._joins(blocks)

    def takes_steps(self, keys: Sequence[Key], computed: int) -> bool:
        """Whether `match` would find something that goes over steps; nothing is promised."""
        _, blocks = self._found(keys, computed)
        return blocks > 0 and not self._joins(blocks)

    def _found(self, keys: Sequence[Key], computed: int) -> tuple[int, int]:
        """Return the first block behind the computed tokens, and how many blocks have copies."""
        first = end = computed // self.block_size
        while end < len(keys) and self.store.slot_of(keys[end]) is not None:
            end += 1
        return first, end - first

    def _joins(self, blocks: int) -> bool:
        return self.in_step and blocks <= self.in_step_blocks

    def allocated(self, request_id: str, block_ids: Sequence[int], tokens: int) -> None:
        """Start the load that `match` promised, into the blocks that the request was given."""
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
        """The request has ended: what is not sent yet need not be copied."""
        self._matched.pop(request_id, None)
        self._loaded.pop(request_id, None)
        loading = self._loading.get(request_id)
        if loading is not None:
            loading.called_off = True

    def order(self, orders: SwapOrders, left: int, computes: bool) -> int:
        """Add the step's loads to its orders; return what is left of the budget."""
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
                continue  # its last piece is out
            end = loading.sent + max(0, left)
            if not orders.loads and left <= 0:
                end = loading.sent + 1  # somebody waits: never stand still
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
        """A step with a forward pass is over, and with it the loads that joined it."""
        if not self._in_flight:
            return
        for keys, load in self._in_flight.popleft():
            self.store.unwant(keys)
            if invalid_blocks:
                bad = zip(keys, load.blocks, strict=True)
                self._distrust(key for key, block in bad if block in invalid_blocks)

    def take_loaded(self, request_id: str) -> int:
        """Return how many tokens were loaded for a request that now runs."""
        return self._loaded.pop(request_id, 0)

    def received(self, request_ids: Iterable[str], failed: Iterable[str]) -> None:
        """Loads over steps have ended, well or badly."""
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
        """Drop copies that could not be read, but not under others who are reading them.

        Whoever has the same prefix may be: his load ends, well or badly, in its own time.
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
        """Who waits for a load over steps, and for how many blocks."""
        return {request_id: len(load.blocks) for request_id, load in self._loading.items()}

    @property
    def unfilled_blocks(self) -> int:
        """Blocks that were allocated to be loaded into, and are not loaded yet."""
        return sum(len(load.blocks) for load in self._loading.values())

    @property
    def keys_being_read(self) -> set[Key]:
        """Whose copies must stay where they are for now."""
        read = {key for loading in self._loading.values() for key in loading.keys}
        read |= {key for keys, _ in self._in_step for key in keys}
        return read | {key for step in self._in_flight for keys, _ in step for key in keys}

    def _slots(self, keys: Iterable[Key]) -> list[int]:
        """Return where the copies are."""
        slots = [self.store.slot_of(key) for key in keys]
        assert None not in slots, "a copy that is being read was reused"
        return slots  # type: ignore[return-value]
