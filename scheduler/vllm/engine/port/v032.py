"""The port to vLLM 0.32, which reads and changes attributes of its scheduler."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.request_queue import SchedulingPolicy
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request, RequestStatus

from caesura.scheduler.vllm.engine.port.blocks import (
    Block,
    Blocks,
    BlockSizes,
    Place,
    PrefixCache,
    attention_tokens,
    checkpoints_kept,
    groups_of,
    owned_alone,
    places_of,
)
from caesura.scheduler.vllm.engine.port.engine_state import (
    OF_CHUNK,
    OF_STEPS,
    EngineState,
    LoadsOverSteps,
    Queue,
    StepWork,
    Stop,
)
from caesura.scheduler.vllm.engine.port.layout import layout_of
from caesura.scheduler.vllm.engine.port.requests import (
    READY,
    repeats_last_token,
    waits_for_tool,
)


class Parked:
    """The paused requests of one scheduler that are in none of its queues.

    A request returns to the place that it would have if it had stayed in its queue. Requests that
    hold KV were added at the back of their queue. Those that lost it went to the front of the
    other one.
    """

    def __init__(self) -> None:
        self._requests: dict[str, Request] = {}
        self._places: dict[str, int] = {}
        """Of requests that were parked: above 0 with KV, in the order of the queue."""
        self._last = 0
        self._first = 0

    def __len__(self) -> int:
        return len(self._requests)

    def requests(self) -> Collection[Request]:
        """Return the requests."""
        return self._requests.values()

    def take(self, request: Request, holding_kv: Any) -> None:
        """Take a request out of the queue of requests with KV, if it is there."""
        for index in reversed(range(len(holding_kv))):  # it has just come to the back
            if holding_kv[index] is request:
                del holding_kv[index]
                self._last += 1
                self._requests[request.request_id] = request
                self._places[request.request_id] = self._last
                return

    def lost_kv(self, request: Request) -> bool:
        """Move a request to the front of those without KV; return whether it is here."""
        if request.request_id not in self._requests:
            return False
        self._first -= 1
        self._places[request.request_id] = self._first
        return True

    def forget(self, request_id: str) -> None:
        """Forget a request that is about to be freed."""
        self._requests.pop(request_id, None)
        self._places.pop(request_id, None)

    def put_back(self, request: Request, holding_kv: Any, others: Any) -> None:
        """Put a request, if it is here, into its queue of the two."""
        if self._requests.pop(request.request_id, None) is None:
            return
        place = self._places[request.request_id]
        queue = holding_kv if place > 0 else others
        for index, one in enumerate(queue):
            other = self._places.get(one.request_id)
            # Requests that were never parked came to the other queue's back.
            if other > place if other is not None else place < 0:
                queue.insert(index, request)
                return
        queue.append(request)


class EngineState032(EngineState):
    """Answers `EngineState` for a scheduler of vLLM 0.32."""

    def __init__(self, scheduler: Scheduler) -> None:
        # vLLM's annotations cover only part of these attributes.
        self._scheduler: Any = scheduler
        self._manager: Any = scheduler.kv_cache_manager
        self._groups = len(scheduler.kv_cache_config.kv_cache_groups)
        self.sizes = BlockSizes(scheduler.kv_cache_config, scheduler.parallel_config.world_size)
        self.cache = PrefixCache(self._manager, scheduler.kv_cache_config)
        self._held: list[tuple[Any, list[Request], dict[int, int]]] = []
        self._displaced: list[Request] = []
        self._given_back: set[str] = set()
        """Whose slots the runner was told to free since the last step with tokens."""
        self._parked = Parked()
        self.blocks = Blocks(self._manager.block_pool)
        self.hash_tokens: int = scheduler.hash_block_size
        self.layout = layout_of(
            scheduler.kv_cache_config, scheduler.cache_config, scheduler.num_spec_tokens
        )
        self.groups = groups_of(scheduler.kv_cache_config)
        self._has_gaps = bool(self.groups.windows or self.groups.states or self.layout.unknown)
        """Whether null blocks stand in a request's row for what a group has passed."""
        self.attention_tokens = attention_tokens(scheduler.kv_cache_config, scheduler.block_size)
        self.max_context_tokens: int = scheduler.max_model_len
        self.max_running: int = scheduler.max_num_running_reqs

    # -- engine ----------------------------------------------------------------------------------

    @property
    def connector(self) -> Any:
        return self._scheduler.connector

    @property
    def reports_stats(self) -> bool:
        return bool(self._scheduler.log_stats)

    def recompute_failed_loads(self) -> None:
        self._scheduler.recompute_kv_load_failures = True

    @property
    def goes_by_priority(self) -> bool:
        return bool(self._scheduler.policy == SchedulingPolicy.PRIORITY)

    # -- requests --------------------------------------------------------------------------------

    def request(self, request_id: str) -> Request | None:
        found: Request | None = self._scheduler.requests.get(request_id)
        return found

    def request_ids(self) -> Collection[str]:
        ids: Collection[str] = self._scheduler.requests.keys()
        return ids

    def running(self) -> Sequence[Request]:
        batch: Sequence[Request] = self._scheduler.running
        return batch

    def running_context(self) -> int:
        return sum([request.num_computed_tokens for request in self._scheduler.running])

    def decoding(self) -> int:
        running = self._scheduler.running
        return sum([request.num_tokens - request.num_computed_tokens <= 1 for request in running])

    # -- queues ----------------------------------------------------------------------------------

    def anything_queued(self) -> bool:
        return bool(self._scheduler.waiting or self._scheduler.kv_holding_waiting)

    def queues(self) -> tuple[Queue, Queue]:
        return self._scheduler.kv_holding_waiting, self._scheduler.waiting

    def ready(self) -> list[Request]:
        queues = [self._scheduler.kv_holding_waiting]
        if self._scheduler.pause_state != PauseState.PAUSED_NEW:
            queues.append(self._scheduler.waiting)
        found = [one for queue in queues for one in queue if one.status in READY]
        return sorted(found) if self.goes_by_priority else found

    def park(self, request: Request) -> None:
        if not self.goes_by_priority:
            self._parked.take(request, self._scheduler.kv_holding_waiting)

    def parked(self) -> Collection[Request]:
        return self._parked.requests()

    def forget(self, request_id: str) -> None:
        self._parked.forget(request_id)

    def in_queue_order(self) -> Iterator[Request]:
        for queue in self.queues():
            yield from tuple(queue)

    def was_passed_over(self, request: Request) -> bool:
        return not request.num_computed_tokens and request in self._scheduler.deferred_waiting

    def slots_left(self, kept: int) -> int:
        scheduler = self._scheduler
        return int(scheduler.max_num_active_reqs) - len(scheduler.running) - kept

    def hold_back(self, queue: Any, held: list[Request], places: Mapping[str, int]) -> None:
        self._held.append((queue, held, {id(one): at for at, one in enumerate(queue)}))
        left = set(held)
        if self.goes_by_priority:
            queue.remove_requests(left)
            return
        stay = [request for request in queue if request not in left]
        ranked = iter(
            sorted(
                (one for one in stay if one.request_id in places),
                key=lambda one: places[one.request_id],
            )
        )
        queue.clear()
        queue.extend(next(ranked) if one.request_id in places else one for one in stay)

    def hold_back_paused(self) -> None:
        if self.goes_by_priority:
            return
        queue: Any
        for queue in self.queues():
            held = [request for request in queue if waits_for_tool(request)]
            if not held:
                continue
            stay = [one for one in queue if not waits_for_tool(one)]
            places = {id(one): at for at, one in enumerate(queue)} if stay else {}
            self._held.append((queue, held, places))
            queue.clear()
            queue.extend(stay)

    def _put_back(self) -> None:
        """Put held-back requests back in their places, after those that the step preempted."""
        for queue, held, places in self._held:
            if not held or self.goes_by_priority:
                for request in held:
                    queue.add_request(request)
                continue
            requests = [*queue, *held]
            if len(requests) > len(held):
                requests.sort(key=lambda one: places.get(id(one), -1))
            queue.clear()
            queue.extend(requests)
        self._held.clear()

    # -- the step --------------------------------------------------------------------------------

    @property
    def step_tokens(self) -> int:
        return int(self._scheduler.max_num_scheduled_tokens)

    def admits_nothing(self) -> bool:
        return bool(self._scheduler.pause_state == PauseState.PAUSED_ALL)

    def is_paused(self) -> bool:
        return bool(self._scheduler.pause_state != PauseState.UNPAUSED)

    @contextmanager
    def step(self, max_tokens: int, kept_slots: int) -> Iterator[None]:
        scheduler = self._scheduler
        # vLLM refuses states that another request caches in the same step. What was cached until
        # now counts as of an earlier one, also for the questions before it schedules.
        self._manager.new_step_starts()
        sessions = scheduler.num_waiting_for_streaming_input
        most_tokens = scheduler.max_num_scheduled_tokens
        scheduler.num_waiting_for_streaming_input = kept_slots
        scheduler.max_num_scheduled_tokens = min(most_tokens, self._whole_blocks(max_tokens))
        try:
            yield
        finally:
            scheduler.num_waiting_for_streaming_input = sessions
            scheduler.max_num_scheduled_tokens = most_tokens
            self._put_back()

    def _whole_blocks(self, max_tokens: int) -> int:
        """Return the limit on a step's tokens with room for a block beside those that decode.

        vLLM cuts chunks to whole blocks where it caches recurrent states at their ends, unless a
        block is longer than the limit. A chunk for which less than a block is left would wait for
        as long as others decode.
        """
        scheduler = self._scheduler
        block = int(scheduler.cache_config.block_size)
        if not scheduler.need_mamba_block_aligned_split or max_tokens < block:
            return max_tokens
        others = len(scheduler.running) * (1 + scheduler.num_spec_tokens)
        return max(max_tokens, block + others)

    def work_of(self, output: SchedulerOutput) -> StepWork:
        requests, partly_filled = self._scheduler.requests, self.sizes.partly_filled
        decode = context = partial = 0
        prefills: list[tuple[str, int, int]] = []
        for request_id, tokens in output.num_scheduled_tokens.items():
            request = requests[request_id]
            computed = request.num_computed_tokens
            context += computed
            partial += partly_filled(computed)
            if computed - tokens >= request.num_prompt_tokens:
                decode += tokens
            else:
                prefills.append((request_id, computed - tokens, tokens))
        return StepWork(decode, context, partial, prefills)

    def frees_wait_for_steps(self) -> bool:
        return bool(self._scheduler.defer_block_free)

    def frees_are_pending(self) -> bool:
        scheduler = self._scheduler
        in_flight = scheduler.sched_step_seq > scheduler.processed_step_seq
        return bool(scheduler.defer_block_free and in_flight)

    # -- a simulation ----------------------------------------------------------------------------

    def levels(self) -> tuple[int, int, int]:
        scheduler = self._scheduler
        paused = scheduler.num_waiting_for_streaming_input
        queued = sum(map(len, (scheduler.waiting, scheduler.kv_holding_waiting, self._parked)))
        return len(scheduler.running), queued - paused, paused

    def chunks_of(self, output: SchedulerOutput) -> list[tuple[str, int, int, bool]]:
        requests = self._scheduler.requests
        chunks = []
        for request_id, count in output.num_scheduled_tokens.items():
            request = requests[request_id]
            computed, more = request.num_computed_tokens, request.is_prefill_chunk
            chunks.append((request_id, count, computed, more))
        return chunks

    def admitted_in(self, output: SchedulerOutput) -> list[tuple[str, int]]:
        return [(new.req_id, new.num_computed_tokens) for new in output.scheduled_new_reqs]

    def finish_names_into(self, names: dict[str, None]) -> None:
        self._scheduler.finished_req_ids = names

    def use_first_runner(self) -> None:
        self._scheduler.use_v2_model_runner = False

    # -- blocks of requests ----------------------------------------------------------------------

    def blocks_of(self, request_id: str) -> Sequence[Block]:
        groups: Sequence[Sequence[Block]] = self._manager.get_blocks(request_id).blocks
        return groups[0] if len(groups) == 1 else [block for group in groups for block in group]

    def rows_of(self, request_id: str) -> Sequence[Sequence[Block]]:
        rows: Sequence[Sequence[Block]] = self._manager.get_blocks(request_id).blocks
        return rows

    def places_of(self, request: Request, tokens: int) -> Sequence[Place]:
        managers = self._manager.coordinator.single_type_managers
        return places_of(managers, self.rows_of(request.request_id), tokens)

    def block_count(self, request_id: str) -> int:
        groups = self._manager.get_blocks(request_id).blocks
        if self._has_gaps:
            return sum(not block.is_null for group in groups for block in group)
        return sum(map(len, groups))

    def running_demand(self, free: int) -> tuple[int, int]:
        running = self._scheduler.running
        most, ahead = self._scheduler.max_num_scheduled_tokens, self._scheduler.num_lookahead_tokens
        new_tokens = [
            max(
                0,
                min(
                    request.num_tokens_with_spec
                    + request.num_output_placeholders
                    - request.num_computed_tokens,
                    most,
                ),
            )
            + ahead
            for request in running
        ]
        tokens = sum(new_tokens)
        most_of = {count: self.sizes.most(count) + self._groups for count in set(new_tokens)}
        bound = sum([most_of[count] for count in new_tokens])
        if bound <= free:
            return bound, tokens
        with checkpoints_kept(self._manager.coordinator.single_type_managers):
            blocks = sum(
                self._blocks_to_allocate(request, request.num_computed_tokens + count)
                for request, count in zip(running, new_tokens, strict=True)
            )
        return blocks, tokens

    def admission_demand(
        self, request: Request, free: int, loads_over_steps: LoadsOverSteps
    ) -> tuple[int, int]:
        scheduler, manager = self._scheduler, self._manager
        watermark = manager.watermark_blocks if scheduler.running else 0
        computed = request.num_computed_tokens
        tokens = request.num_tokens + scheduler.num_lookahead_tokens
        tokens = min(tokens, self.max_context_tokens)
        if computed:
            return self._blocks_to_allocate(request, tokens) + watermark, computed
        reserved = self._reserved_blocks()
        bound = self.sizes.most(tokens) + watermark
        if bound + reserved <= free:
            return bound, 0
        blocks, computed, _ = manager.get_computed_blocks(request)
        needed = self._blocks_to_allocate(request, tokens, blocks.blocks, computed, capped=True)
        if reserved and loads_over_steps(request, computed):
            watermark += reserved
        return needed + watermark, computed

    def _reserved_blocks(self) -> int:
        """Return the blocks that a load over steps must leave to prefills in progress.

        A load cannot be preempted. So vLLM does not admit one after which an earlier admitted
        request might be unable to complete its prompt.
        """
        scheduler = self._scheduler
        if not scheduler._inflight_prefills:
            return 0
        return int(
            scheduler._inflight_prefill_reserved_blocks() + scheduler._spec_decode_step_blocks
        )

    def _blocks_to_allocate(
        self,
        request: Request,
        tokens: int,
        cached_blocks: Any = None,
        cached: int = 0,
        capped: bool = False,
    ) -> int:
        manager = self._manager
        tokens = min(tokens, self.max_context_tokens)
        computed = request.num_computed_tokens + cached
        if cached_blocks is None:
            cached_blocks = manager.empty_kv_cache_blocks.blocks
        return int(
            manager.coordinator.get_num_blocks_to_allocate(
                request_id=request.request_id,
                num_tokens=tokens,
                new_computed_blocks=cached_blocks,
                num_encoder_tokens=0,
                total_computed_tokens=computed,
                num_local_computed_tokens=computed,
                num_tokens_main_model=tokens,
                apply_admission_cap=capped,  # windows give blocks up on the way
                prefill_end=max(request.num_prompt_tokens, request.num_tokens - 1),
            )
        )

    def detach(self, request: Request, keep: int | None) -> tuple[list[Block], int]:
        scheduler = self._scheduler
        kept: list[Block] = []
        freed = 0
        if keep is None:
            scheduler._free_request_blocks(request)
        else:
            blocks = list(self._manager.pop_blocks_for_free(request))
            kept, rest = blocks[:keep], blocks[keep:]
            freed = owned_alone(rest)
            if rest:
                self.give_back(request, rest)
        scheduler.encoder_cache_manager.free(request)
        request.num_computed_tokens = 0
        if self.layout.recurrent:
            self.give_slot_back(request.request_id)  # the runner must not look for its old state
        if not self._parked.lost_kv(request):
            scheduler.kv_holding_waiting.remove_request(request)
            scheduler.waiting.prepend_request(request)
        return kept, freed

    def give_back(self, request: Request | None, blocks: Sequence[Block]) -> None:
        scheduler = self._scheduler
        if request is None or scheduler._request_blocks_can_be_freed(request):
            self.blocks.release(blocks)
        else:
            scheduler.deferred_frees.append((scheduler.sched_step_seq, list(blocks)))

    def blocks_given_back(self) -> Sequence[Block]:
        return [block for _, blocks in self._scheduler.deferred_frees for block in blocks]

    # -- blocks that change hands ----------------------------------------------------------------

    def settled_tokens(self, request: Request) -> int | None:
        if self.layout.recurrent:
            stop = self._state_of(request)
            return None if stop.spoilt else request.num_tokens - 1 + stop.ahead
        frontier = request.num_computed_tokens - request.num_output_placeholders
        return min(frontier, request.num_tokens - 1)

    def keep(self, request: Request) -> str:
        name = f"{request.request_id} (kept)"
        self._rename(request.request_id, name)
        return name

    def give_back_kept(self, name: str, request: Request) -> None:
        self.give_back(request, self._manager.coordinator.pop_blocks_for_free(name))

    def adopt(self, name: str, request: Request, tokens: int) -> None:
        self._rename(name, request.request_id)
        request.num_computed_tokens = tokens
        if request.prefill_stats is not None:
            request.prefill_stats.set(
                num_prompt_tokens=request.num_prompt_tokens,
                num_local_cached_tokens=tokens,
                num_external_cached_tokens=0,
            )

    def _rename(self, old: str, new: str) -> None:
        """Let vLLM's KV cache managers know what they have of one request under another id.

        Each keeps it in dictionaries and sets by request id, which differ by kind and release.
        """
        for manager in self._manager.coordinator.single_type_managers:
            for kept in vars(manager).values():
                if isinstance(kept, dict) and old in kept:
                    kept[new] = kept.pop(old)
                elif isinstance(kept, set) and old in kept:
                    kept.remove(old)
                    kept.add(new)

    # -- pauses ----------------------------------------------------------------------------------

    def _state_of(self, request: Request) -> Stop:
        """Return what the recurrent state of a stopped session holds after the steps in flight."""
        if self.layout.discards:
            return Stop(spoilt=self.layout.discards)
        beyond = request.num_computed_tokens - (request.num_tokens - 1)
        if not beyond:
            return Stop()
        if beyond != 1 or request.num_in_flight_tokens != 1:
            return Stop(spoilt=OF_STEPS)
        # A chunk that has already arrived may be the end of the input.
        chunk = request.streaming_queue[0] if request.streaming_queue else None
        if chunk is not None and not repeats_last_token(request, chunk):
            return Stop(spoilt=OF_CHUNK)
        return Stop(ahead=True)

    def stops(self, request: Request) -> Stop:
        stop = Stop(preempted=request.num_computed_tokens == 0)
        if self.layout.recurrent and not stop.preempted:
            stop = self._state_of(request)
        if stop.preempted and request.streaming_queue:
            # The next chunk has already arrived, and follows all tokens but the last.
            request.num_computed_tokens = request.num_tokens - 1
        # vLLM counts every accepted draft token as computed, also those after the end of a call,
        # which are not kept. The last kept token was never computed. With asynchronous scheduling
        # there are placeholders for them, which vLLM subtracts itself.
        frontier = request.num_computed_tokens - request.num_output_placeholders
        request.num_computed_tokens -= max(0, frontier - (request.num_tokens - 1))
        return stop

    def advance(self, session: Request) -> None:
        session.num_computed_tokens += 1

    def keep_in_queue(self, request: Request) -> None:
        request.num_computed_tokens = 0
        self._displaced.append(request)

    def requeue_stopped(self) -> None:
        for request in self._displaced:
            self._scheduler.waiting.prepend_request(request)
            if request.status == RequestStatus.WAITING_FOR_STREAMING_REQ:
                self._scheduler.deferred_waiting.add(request)
        self._displaced.clear()

    def is_over(self, client_index: int, request_id: str) -> None:
        over = self._scheduler.finished_req_ids_dict
        if over is not None:
            over[client_index].add(request_id)

    def give_slot_back(self, request_id: str) -> None:
        self._scheduler.reset_preempted_req_ids.add(request_id)
        self._given_back.add(request_id)

    def tell_again(self, output: SchedulerOutput) -> None:
        if self.layout.recurrent and not output.total_num_scheduled_tokens:
            self._given_back &= self._scheduler.requests.keys()
            self._scheduler.reset_preempted_req_ids.update(self._given_back)
        else:
            self._given_back.clear()

    def before_chunk(self, session: Request, frontier: int | None) -> None:
        self._parked.put_back(session, *self.queues())
        if frontier is not None:
            session.num_computed_tokens = frontier

    def after_chunk(self, session: Request, arrival: float, dropped: bool) -> None:
        self._scheduler.deferred_waiting.discard(session)
        session.arrival_time = arrival  # vLLM's priority queue compares it
        if dropped:
            session.num_computed_tokens = 0
        # With a count above 0, vLLM would assume that the runner still has the session and the
        # tokens of the earlier turn in which it was preempted.
        session.num_preemptions = 0
        session.spec_token_ids = []  # these drafts do not fit the tool's result
