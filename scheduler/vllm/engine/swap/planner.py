"""The scheduler's side of swapping: it decides what is copied in each step.

With one group of full attention, the planner copies only full blocks below a request's frontier,
which no later step writes. Of a request that is copied as a whole it copies the last blocks too:
nothing writes to them while it is paused. So a copy never races with a step that writes KV. The
planner references blocks until every worker has confirmed their copy, so that none of them is
reused meanwhile.

A step copies at most `budget` blocks in both directions together (InferCept 4.1). Loads go first,
for resumed requests and for requests with the same prefix. The rest of the budget saves KV of
paused requests.
"""

import logging
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from caesura.intercept.kv.costs import Direction, WorkersPace
from caesura.scheduler.vllm.engine.port import Block, Blocks
from caesura.scheduler.vllm.engine.port.blocks import ids_of, is_hashed, referenced_once
from caesura.scheduler.vllm.engine.swap.host import HostStore, Key, Whole
from caesura.scheduler.vllm.engine.swap.messages import (
    Load,
    Save,
    SwapOrders,
    SwapReport,
    WorkerMemory,
)

logger = logging.getLogger(__name__)


MAX_SAMPLES = 1024


@dataclass(slots=True)
class _Loading:
    keys: list[Key]
    blocks: list[int]
    sent: int = 0
    called_off: bool = False


@dataclass
class Loads:
    """Plans the loads of one scheduler; `in_step` allows them to join their step.

    A load of at most `in_step_blocks` joins the step that needs it, layer by layer. A longer load
    is split over several steps, as the budget allows; its request waits meanwhile.
    """

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
    offers: dict[str, Whole] = field(default_factory=dict)
    """What can be loaded for a request as a whole, once all of it has copies."""

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

    def match_whole(self, request_id: str, computed: int) -> tuple[int, bool]:
        """Return as `match` what a request is offered, if it was copied as a whole.

        Its load always takes steps: vLLM knows failures of single blocks with one group only.
        """
        whole = self.offers.get(request_id)
        if whole is None or not whole.keys or whole.tokens <= computed:
            return 0, False
        if any(self.store.slot_of(key) is None for key in whole.keys):
            return 0, False
        return whole.tokens - computed, True

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

    def allocated_whole(
        self, request_id: str, rows: Sequence[Sequence[Block]], tokens: int
    ) -> None:
        """Start the load that `match_whole` found, into the blocks of the request, by group.

        Blocks that the prefix cache had need no load; only those have a hash.
        """
        if not tokens:
            return
        whole = self.offers[request_id]
        keys, blocks = [], []
        for place, key in zip(whole.places, whole.keys, strict=True):
            block = rows[place.group][place.ordinal]
            if not is_hashed(block):
                keys.append(key)
                blocks.append(block)
        self._loaded[request_id] = tokens
        self.store.want(keys)
        self._loading[request_id] = _Loading(keys, ids_of(blocks))

    def withdraw(self, whole: Whole, *request_ids: str | None) -> None:
        """Offer it no longer to these requests."""
        for request_id in request_ids:
            if request_id is not None and self.offers.get(request_id) is whole:
                del self.offers[request_id]

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


@dataclass(slots=True)
class _Saving:
    blocks: list[Block]
    keys: list[Key]
    confirmed: int = 0
    failed: bool = False
    called_off: bool = False


@dataclass(slots=True)
class StepTraffic:
    """Numbers of blocks that a step copies, and its budget in blocks."""

    budget: int = 0
    saved: int = 0
    loaded: int = 0


class Copied(NamedTuple):
    """One report of copies in one direction: tokens of KV, and the seconds they took.

    The copies ran for `beside` of the `seconds` during a forward pass.
    """

    direction: Direction
    tokens: int
    seconds: float
    beside: float


class SwapPlanner:
    """Plans saves and the orders of a step; `loads` plans the loads."""

    def __init__(
        self,
        store: HostStore,
        *,
        block_size: int,
        block_bytes: int,
        workers: int = 1,
        in_step: bool = True,
    ) -> None:
        """Create a planner; a block of `block_size` tokens has `block_bytes` in each worker.

        `in_step` allows loads to join the step that needs them.
        """
        self.store = store
        self.loads = Loads(store, in_step, block_size)
        self.pool: Blocks | None = None
        self.budget = 0
        self.works = True
        self.pays = True
        """Whether the link is fast enough for loads; copies to the host may still measure it."""
        self.max_failures = 3
        """Number of consecutive failed saves after which swapping is switched off."""
        self.traffic = StepTraffic()
        self.copied: deque[Copied] = deque(maxlen=MAX_SAMPLES)
        """The last copies, as workers measured them."""
        self.copies_measured = 0
        self.engine_block_bytes = block_bytes * workers
        """Bytes of a block in all workers together."""
        self._workers = workers
        self._block_size = block_size
        self._token_bytes = dict.fromkeys(range(workers), block_bytes / block_size)
        self._paces: dict[Direction, WorkersPace] = {
            "out": WorkersPace(workers),
            "in": WorkersPace(workers),
        }
        self._saving: dict[int, _Saving] = {}
        self._wishes: list[tuple[Block, Key]] = []
        self._settled: list[Key] = []
        self._jobs = 0
        self._failures = 0
        self._said_full = False

    # -- the engine starts -----------------------------------------------------------------------

    def agree(self, workers: Collection[WorkerMemory]) -> None:
        """Adapt to what the workers have: each holds its share of every block.

        Stages of a pipeline may differ in their layers, so the worker with the fewest slots
        decides. A worker that cannot swap switches swapping off.
        """
        slots = min((each.slots for each in workers), default=0)
        if len(workers) < self._workers or not slots:
            unable = sorted(each.worker for each in workers if not each.slots)
            logger.warning(
                "swapping is off: of %d workers %d have told of their host memory, and these"
                " cannot swap: %s; the workers' own warnings give the reason",
                self._workers,
                len(workers),
                unable,
            )
            self.works = False
            return
        self.store.shrink(slots)
        self.engine_block_bytes = sum(each.block_bytes for each in workers)
        for each in workers:
            self._token_bytes[each.worker] = each.block_bytes / self._block_size

    # -- a request is paused ---------------------------------------------------------------------

    def wish(self, blocks: Iterable[tuple[Block, Key]]) -> None:
        """Request copies in the next step; the planner drops those that exceed its budget."""
        self._wishes.extend(blocks)

    # -- the step --------------------------------------------------------------------------------

    def orders(self, computes: bool) -> SwapOrders:
        """Return the workers' copies in this step; `computes`: it has a forward pass."""
        orders = SwapOrders()
        left = self.budget
        self.traffic = StepTraffic(budget=left)
        left = self.loads.order(orders, left, computes)
        self.traffic.loaded = sum(len(load.blocks) for load in orders.loads)
        self._new_saves(orders, left)
        return orders

    @property
    def _blocks(self) -> Blocks:
        assert self.pool is not None, "vLLM binds its pool before the first step"
        return self.pool

    def _new_saves(self, orders: SwapOrders, left: int) -> None:
        wishes, self._wishes = self._wishes, []
        blocks: list[Block] = []
        keys: list[Key] = []
        slots: list[int] = []
        for block, key in wishes:
            if len(blocks) >= left or not self.works:
                break
            if self.store.known(key):
                continue
            slot = self.store.reserve(key)
            if slot is None:
                self._say_full()
                break
            blocks.append(block)
            keys.append(key)
            slots.append(slot)
        if not blocks:
            return
        self._jobs += 1
        self._blocks.reference(blocks)
        self._saving[self._jobs] = _Saving(blocks, keys)
        orders.saves.append(Save(self._jobs, ids_of(blocks), slots))
        self.traffic.saved = len(blocks)

    def _say_full(self) -> None:
        if not self._said_full:
            self._said_full = True
            logger.warning(
                "all %d blocks of host memory hold KV of paused requests: other evicted KV will be"
                " recomputed; raise host_gib to swap more",
                self.store.slots,
            )

    def confirm(self, report: SwapReport) -> None:
        """Record the saves that workers finished or failed, and the measured copies."""
        for job, workers in report.failed.items():
            self._confirm(job, workers, failed=True)
        for job, workers in report.saved.items():
            self._confirm(job, workers, failed=False)
        for each in report.by_worker():
            token_bytes = self._token_bytes.get(each.worker, self._token_bytes[0])
            for direction, pace in self._paces.items():
                way = each.out if direction == "out" else each.into
                if not way.bytes:
                    continue
                done = pace.add(each.worker, way.bytes / token_bytes, way.seconds, way.beside)
                if done is not None:
                    self.copied.append(Copied(direction, *done))
                    self.copies_measured += 1

    def _confirm(self, job: int, workers: int, failed: bool) -> None:
        saving = self._saving[job]
        saving.confirmed += workers
        saving.failed = saving.failed or failed
        if saving.confirmed < self._workers:
            return
        del self._saving[job]
        if saving.failed:
            self._paces["out"].forget()  # some workers made a copy that others did not
        for key in saving.keys:
            if saving.failed or saving.called_off:
                self.store.fail(key)
            else:
                self.store.confirm(key)
        self._settled += saving.keys
        self._blocks.release(saving.blocks)
        if saving.called_off:
            return
        self._failures = self._failures + 1 if saving.failed else 0
        if self._failures >= self.max_failures and self.works:
            self.works = False
            logger.warning(
                "%d copies to the host failed in a row: swapping is off, and evicted KV will be"
                " recomputed",
                self._failures,
            )

    def loads_failed(self) -> None:
        """Drop the measures of loads that some workers made and others did not."""
        self._paces["in"].forget()

    def take_settled(self) -> list[Key]:
        """Return the keys whose copy was made, failed or was lost since the last call."""
        settled, self._settled = [*self._settled, *self.loads.distrusted], []
        self.loads.distrusted.clear()
        return settled

    def reset(self) -> None:
        """Drop every copy, including unfinished saves; loads in progress still finish."""
        read = self.loads.keys_being_read
        self.store.forget(key for key in self.store.confirmed if key not in read)
        self.call_off_saves()

    def call_off_saves(self) -> None:
        """Release the blocks that are being saved; their copies will be discarded."""
        for saving in self._saving.values():
            blocks, saving.blocks = saving.blocks, []
            saving.called_off = True
            self._blocks.release(blocks)

    # -- questions -------------------------------------------------------------------------------

    @property
    def loads_pay(self) -> bool:
        """Whether KV is to be loaded where the host has it."""
        return self.works and self.pays

    @property
    def active(self) -> bool:
        """Whether a step may have something to copy, so that its budget must be set."""
        return self.store.used > 0

    @property
    def busy(self) -> bool:
        """Whether the engine must keep stepping to make and confirm copies."""
        return bool(self._saving) or self.loads.busy

    @property
    def frees_blocks_soon(self) -> bool:
        """Whether some block is held only by an unconfirmed save."""
        return any(
            referenced_once(block) for saving in self._saving.values() for block in saving.blocks
        )

    def blocks_in_flight(self) -> list[Block]:
        """Return the blocks that the planner references until their saves are confirmed."""
        return [block for saving in self._saving.values() for block in saving.blocks]
