"""Pausing and resuming requests inside vLLM's own scheduler.

vLLM's scheduler keeps running what it runs; this mixin adds what a pause needs. A request that
Caesura watches is a resumable session of vLLM's ("streaming input"). When the token that completes
a call is decoded, the request stops there and waits with its KV cache in place; when the client
pushes the tool's result, it is appended to the very same request, which goes on. Three things
differ from vLLM's stock sessions, since a pause must never stand in anybody's way:

- its KV cache may be given up at any step (`keeper`, `pressure`), block by block;
- it gives its runner slot back: `max_num_seqs` bounds running requests, not sessions
  (sessions that nobody watches keep theirs: vLLM's own tests ask for it);
- a turn that ends without a call finishes the request at once instead of waiting for the client.
"""

import time
from typing import Any

from vllm import __version_tuple__ as vllm_version
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.request import Request, RequestStatus, StreamingUpdate

from caesura.intercept.events import ResumeReport
from caesura.intercept.pause import Pause, State, Step
from caesura.scheduler.predict.forecast import Predictor
from caesura.scheduler.vllm import pressure
from caesura.scheduler.vllm.aside import Aside
from caesura.scheduler.vllm.control import ControlPort
from caesura.scheduler.vllm.lanes import Lanes
from caesura.scheduler.vllm.recompute import Recomputation
from caesura.scheduler.vllm.retention import Retainer
from caesura.scheduler.vllm.setup import make_keeper, make_line
from caesura.scheduler.vllm.stopping import NOTHING, StoppingScheduler

VLLM_QUEUES_AGAIN = vllm_version[:2] >= (0, 33)
"""Whether vLLM itself queues sessions again that stop while they are preempted."""


class PausingScheduler(StoppingScheduler):
    """vLLM's scheduler with pause and resume; a mixin for every scheduler derived from it."""

    # Class-level defaults, since vLLM's own tests build schedulers without calling __init__.
    _pauses: Any = NOTHING
    _resumes: Any = NOTHING
    _displaced: Any = ()
    _slot_holders: Any = frozenset()
    _control: ControlPort | None = None
    _retainer: Retainer | None = None
    _keeper: Any = None
    _line: Any = None
    num_waiting_for_streaming_input: int
    max_num_scheduled_tokens: int

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Take what vLLM's scheduler takes."""
        super().__init__(*args, **kwargs)
        self._clock, self._wall = time.monotonic, time.time
        self._keeper = make_keeper(self)
        settings = self._keeper.settings
        measured = settings.calibration is not None
        self._recompute = Recomputation(self, self._keeper.costs, settings.chunk, measured)
        self._line, self._aside = make_line(self), Aside(self)
        assert self._watcher is not None
        self._retainer = Retainer(self, self._keeper, self._watcher)
        self._control = ControlPort(self)
        self._pauses: dict[str, Pause] = {}
        self._resumes: dict[str, ResumeReport] = {}
        self._displaced: list[Request] = []
        # Paused sessions of vLLM's own, which keep their runner slot as ever.
        self._slot_holders: set[str] = set()

    @property
    def _lanes(self) -> Lanes | None:
        """Where each request stands; None: nobody reads records."""
        return None if self._keeper is None else self._keeper.ledger.lanes

    # -- what comes in ---------------------------------------------------------------------------

    def add_request(self, request: Request) -> None:
        """Add a request, a session's next chunk, its end, or a control message."""
        if self._control is not None and self._control.take(request):
            return
        known = request.request_id in self.requests
        super().add_request(request)
        if self._retainer is not None and request.request_id in self.requests:
            if not known:
                self._line.lives.arrived(request, self._clock())
            self._retainer.arrived(request, self._line.lives)
            if not known and (lanes := self._lanes) is not None:
                lanes.arrived(request, self._retainer.followed(request.request_id))

    def _update_request_as_session(self, session: Request, update: StreamingUpdate) -> None:
        """Append the tool's result.

        vLLM keeps the tokens up to `num_computed_tokens`, which is 0 while the KV cache of a pause
        is dropped: the frontier stands in for it, so that no decoded token is lost.
        """
        pause = self._pauses.get(session.request_id)
        if pause is not None:
            self._slot_holders.discard(session.request_id)
            if not pause.held:
                session.num_computed_tokens = pause.frontier_tokens
        super()._update_request_as_session(session, update)
        if pause is not None:
            now = self._clock()
            holding = self._keeper.holdings[session.request_id]
            pause.take(Step.RETURN, now)
            self._keeper.returned(holding, now)
            returned = len(update.prompt_token_ids or ()) - 1  # the first is the last one sampled
            self.deferred_waiting.discard(session)
            session.arrival_time = holding.life.arrival  # what vLLM's priorities go by
            self._line.lives.answered(session.request_id, holding.tool, max(0, returned), now)
            if not pause.held:
                session.num_computed_tokens = 0
            # A new turn: vLLM would take one that was preempted in an earlier turn for one that
            # the runner still knows, with the tokens of that turn.
            session.num_preemptions = 0
        if (lanes := self._lanes) is not None:
            lanes.returned(session)
        self._watch(session)

    # -- the step --------------------------------------------------------------------------------

    def schedule(self, throttle_prefills: bool = False) -> SchedulerOutput:
        """Schedule a step, after the KV of paused requests has been dealt with."""
        now = self._clock()
        if self._keeper.active:
            self._keeper.before_step(now)
        # vLLM counts paused sessions as running, since its runner would keep a slot for each.
        # Ours have given theirs back, so for the length of this call they do not count.
        sessions, most_tokens = self.num_waiting_for_streaming_input, self.max_num_scheduled_tokens
        self.num_waiting_for_streaming_input = len(self._slot_holders)
        self.max_num_scheduled_tokens = min(
            most_tokens, self._recompute.limit(most_tokens, self._keeper.holdings)
        )
        try:
            if self._keeper.holdings or self.waiting or self.kv_holding_waiting:
                pressure.relieve(self)
            if self._keeper.active:
                self._keeper.copies(now)
            output = super().schedule(throttle_prefills)
        finally:
            self.num_waiting_for_streaming_input = sessions
            self.max_num_scheduled_tokens = most_tokens
            self._aside.put_back()
        self._line.after_step()
        if self._keeper.holdings:
            self._note_admissions(output)
            pressure.unwedge(self, output)
        self._keeper.ledger.scheduled(output, self._recompute, self._keeper.planner, now)
        return output

    def _preempt_request(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Take the blocks of a running request."""
        computed = request.num_computed_tokens
        super()._preempt_request(request, *args, **kwargs)
        if (lanes := self._lanes) is not None:
            lanes.preempted(request, computed)

    def _note_admissions(self, output: SchedulerOutput) -> None:
        now = self._clock()
        cached = output.scheduled_cached_reqs.resumed_req_ids
        admitted = output.num_scheduled_tokens if output.scheduled_new_reqs or cached else {}
        for request_id, scheduled in admitted.items():
            pause = self._pauses.get(request_id)
            if pause is None or pause.state is not State.RESUMING:
                continue
            pause.take(Step.ADMIT)
            computed = self.requests[request_id].num_computed_tokens - scheduled
            self._resumes[request_id] = self._keeper.admitted(pause, computed, now)
            self._recompute.begin(request_id, computed, pause.frontier_tokens)
            del self._pauses[request_id]
        self._keeper.after_step()
        if self._retainer is not None:
            self._retainer.after_step()

    def _handle_stopped_request(self, request: Request) -> bool:
        """Pause a request whose turn holds a call; end one whose turn holds none."""
        resume = self._resumes.pop(request.request_id, None) if self._resumes else None
        if self._ends(request, resume):
            return True
        preempted = request.num_computed_tokens == 0
        if preempted and request.streaming_queue:
            # The next chunk is here already: it comes behind all tokens but the last.
            request.num_computed_tokens = request.num_tokens - 1
        finished = super()._handle_stopped_request(request)
        if finished:
            return True
        if request.status == RequestStatus.WAITING_FOR_STREAMING_REQ:
            self._pause(request, preempted)
        elif preempted:
            request.num_computed_tokens = 0
            self._displaced.append(request)
        return False

    def _pause(self, request: Request, preempted: bool) -> None:
        pause = Pause(request.request_id, self._clock(), request.num_computed_tokens)
        pause.take(Step.PAUSE)
        self._pauses[request.request_id] = pause
        self._recompute.end(request.request_id)
        if preempted:
            # Its last token was in flight when it lost its blocks (asynchronous scheduling only).
            # All tokens but that one count as computed, as in every other pause.
            pause.frontier_tokens = request.num_tokens - 1
            pause.take(Step.RECLAIM)
            self._displaced.append(request)
        watch = self._watches.get(request.request_id)
        tool = hint = None
        if watch is not None and self._watcher is not None:
            tool, hint = self._watcher.waits_for(request, watch)
        if tool is not None and hint is not None:
            self._keeper.memory.predictor.expect(tool, hint.seconds)
            pause.deadline_seconds = hint.deadline_seconds
        life = self._line.lives.called(request, tool)
        self._keeper.paused(request, pause, tool, life)
        if watch is None:
            self._slot_holders.add(request.request_id)
            return
        # The runner frees the slot of a preempted request, and its next chunk arrives as a new
        # request with computed tokens. Blocks are the scheduler's business, not the runner's.
        self.reset_preempted_req_ids.add(request.request_id)

    def use_predictor(self, predictor: Predictor) -> None:
        """Have another one foretell lengths, pauses and calls, as a simulation that knows them."""
        self._keeper.predictor = self._line.lives.predictor = predictor

    def drop_kv(self, request_id: str) -> None:
        """Discard a paused request's KV; what is not evicted meanwhile is found again."""
        self._keeper.drop(self._keeper.holdings[request_id], self._clock(), "reset")

    def reset_prefix_cache(
        self, reset_running_requests: bool = False, reset_connector: bool = False
    ) -> bool:
        """Reset the prefix cache; paused blocks, which would prevent it, are given up."""
        self._keeper.drop_all(self._clock())
        if self._keeper.planner is not None:
            self._keeper.planner.call_off_saves()
        return super().reset_prefix_cache(reset_running_requests, reset_connector)

    def reset_connector_cache(self) -> bool:
        """Forget every copy on the host."""
        done = bool(super().reset_connector_cache())
        if self._keeper is not None:
            self._keeper.sight.recount(self._keeper.holdings.values())
        return done

    def shutdown(self) -> None:
        """Keep what was learned, and stop."""
        if self._keeper is not None:
            self._keeper.memory.save()
        super().shutdown()

    # -- what goes out ---------------------------------------------------------------------------

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: Any
    ) -> dict[int, Any]:
        """Process a step's tokens, and answer control messages."""
        outputs = super().update_from_output(scheduler_output, model_runner_output)
        if self._keeper is not None:
            self._keeper.step_done(scheduler_output, model_runner_output, self._clock())
        if self._displaced:
            self._queue_again()
        if self._control is not None:
            self._control.answer(outputs)
        return outputs

    def _queue_again(self) -> None:
        """Undo that vLLM 0.32 takes requests that stopped while preempted out of its queues."""
        for request in () if VLLM_QUEUES_AGAIN else self._displaced:
            self.waiting.prepend_request(request)
            if request.status == RequestStatus.WAITING_FOR_STREAMING_REQ:
                self.deferred_waiting.add(request)
        self._displaced.clear()

    def has_requests(self) -> bool:
        """Keep the engine stepping while a message waits for its answer, or a record to leave."""
        if super().has_requests() or (self._control is not None and self._control.owes_answers):
            return True
        return self._keeper is not None and self._keeper.ledger.pending

    def _free_request(self, request: Request, delay_free_blocks: bool = False) -> Any:
        request_id = request.request_id
        if self._retainer is not None:
            self._retainer.finished(request, self._watches.get(request_id), self._line.lives)
            self._recompute.end(request_id)
        if self._resumes:
            self._resumes.pop(request_id, None)
        if self._pauses:
            pause = self._pauses.pop(request_id, None)
            if pause is not None:
                self._slot_holders.discard(request_id)
                pause.take(Step.CLOSE)
                self._keeper.close(self._keeper.holdings[request_id], self._clock())
        if (lanes := self._lanes) is not None and request_id not in self._keeper.holdings:
            lanes.ended(request_id)
        return super()._free_request(request, delay_free_blocks=delay_free_blocks)


class CaesuraScheduler(PausingScheduler):
    """For engines without asynchronous scheduling."""


class CaesuraAsyncScheduler(PausingScheduler, AsyncScheduler):
    """For engines with asynchronous scheduling, vLLM's default on GPUs."""
