"""Pausing and resuming requests inside vLLM's own scheduler.

vLLM's scheduler keeps running what it runs; this mixin adds what a pause needs. A request that
Caesura watches is a resumable session of vLLM's ("streaming input"). When the token that completes
a call is decoded, the request stops there and waits with its KV cache in place; when the client
pushes the tool's result, it is appended to the very same request, which goes on. Three things
differ from vLLM's stock sessions, since a pause must never stand in anybody's way:

- its KV cache may be reclaimed at any step (`pressure`), and is recomputed when it resumes;
- it gives its runner slot back: `max_num_seqs` bounds running requests, not sessions
  (sessions that nobody watches keep theirs: vLLM's own tests ask for it);
- a turn that ends without a call finishes the request at once instead of waiting for the client.
"""

import time
from collections.abc import Mapping
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request, RequestStatus, StreamingUpdate

from caesura.intercept.events import ResumeReport
from caesura.intercept.pause import Pause, State, Step
from caesura.intercept.trigger import Verdict, Watch
from caesura.scheduler.vllm import pressure
from caesura.scheduler.vllm.control import ControlPort
from caesura.scheduler.vllm.watching import Watcher
from caesura.scheduler.vllm.wire import REPORT_KEY

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class PausingScheduler(Scheduler):
    """vLLM's scheduler with pause and resume; a mixin for every scheduler derived from it."""

    # Class-level defaults, since vLLM's own tests build schedulers without calling __init__.
    _watches: Any = _NOTHING
    _pauses: Any = _NOTHING
    _resumes: Any = _NOTHING
    _stops: Any = _NOTHING
    _closing: Any = frozenset()
    _displaced: Any = ()
    _slot_holders: Any = frozenset()
    _watcher: Watcher | None = None
    _control: ControlPort | None = None
    num_waiting_for_streaming_input: int

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Take what vLLM's scheduler takes."""
        super().__init__(*args, **kwargs)
        self._clock = time.monotonic
        self._watcher = Watcher(self.vllm_config)
        self._control = ControlPort(self)
        self._watches: dict[str, Watch] = {}
        self._pauses: dict[str, Pause] = {}
        self._resumes: dict[str, ResumeReport] = {}
        self._stops: dict[str, dict[str, Any]] = {}
        self._displaced: list[Request] = []
        # Paused sessions that nobody watches: vLLM's own, which keep their runner slot as ever.
        self._slot_holders: set[str] = set()
        # Sessions that ended here while the client has still to close its input.
        self._closing: set[str] = set()

    # -- what comes in ---------------------------------------------------------------------------

    def add_request(self, request: Request) -> None:
        """Add a request, a session's next chunk, its end, or a control message."""
        if self._control is not None and self._control.take(request):
            return
        request_id = request.request_id
        known = request_id in self.requests
        if not known and request_id in self._closing:
            self._closing.discard(request_id)
            return
        super().add_request(request)
        if not known:
            self._watch(request)

    def finish_requests(self, request_ids: Any, finished_status: RequestStatus) -> list[Request]:
        """Abort from whatever state."""
        if self._closing:
            if request_ids is None:
                self._closing.clear()
            else:
                ids = (request_ids,) if isinstance(request_ids, str) else tuple(request_ids)
                request_ids = ids
                self._closing.difference_update(ids)
        return super().finish_requests(request_ids, finished_status)

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
            pause.take(Step.RETURN, self._clock())
            if not pause.held:
                session.num_computed_tokens = 0
        self._watch(session)

    def _watch(self, request: Request) -> None:
        """Attach the watch that the request asks for, for the turn that begins."""
        if self._watches:
            self._watches.pop(request.request_id, None)
        watch = self._watcher.watch_for(request) if self._watcher is not None else None
        if watch is not None:
            self._watches[request.request_id] = watch

    # -- the step --------------------------------------------------------------------------------

    def schedule(self, throttle_prefills: bool = False) -> SchedulerOutput:
        """Schedule a step, after paused KV that stands in the way of it has been reclaimed."""
        if self._pauses:
            pressure.relieve(self)
        # vLLM counts paused sessions as running, since its runner would keep a slot for each.
        # Ours have given theirs back, so for the length of this call they do not count.
        sessions = self.num_waiting_for_streaming_input
        self.num_waiting_for_streaming_input = len(self._slot_holders)
        try:
            output = super().schedule(throttle_prefills)
        finally:
            self.num_waiting_for_streaming_input = sessions
        if self._pauses:
            self._note_admissions(output)
            pressure.unwedge(self, output)
        return output

    def _note_admissions(self, output: SchedulerOutput) -> None:
        now = self._clock()
        for request_id, scheduled in output.num_scheduled_tokens.items():
            pause = self._pauses.get(request_id)
            if pause is None or pause.state is not State.RESUMING:
                continue
            pause.take(Step.ADMIT)
            computed = self.requests[request_id].num_computed_tokens - scheduled
            self._resumes[request_id] = pause.report(
                now, pause.frontier_tokens, min(computed, pause.frontier_tokens)
            )
            del self._pauses[request_id]

    def _update_request_with_output(
        self, request: Request, new_token_ids: list[int], is_stale: bool = False
    ) -> tuple[list[int], bool]:
        """Append decoded tokens, up to the one at which the watch says to stop."""
        watch = self._watches.get(request.request_id)
        if watch is None:
            return super()._update_request_with_output(request, new_token_ids, is_stale=is_stale)
        found = watch.first_stop(new_token_ids)
        if found is not None:
            del new_token_ids[found[0] + 1 :]
        kept, stopped = super()._update_request_with_output(
            request, new_token_ids, is_stale=is_stale
        )
        if found is not None and not stopped:
            request.status = RequestStatus.FINISHED_STOPPED
            stopped = True
        if found is not None:
            self._stops[request.request_id] = {"verdict": found[1].value}
        return kept, stopped

    def _handle_stopped_request(self, request: Request) -> bool:
        """Pause a request whose turn holds a call; end one whose turn holds none."""
        request_id = request.request_id
        watch = self._watches.get(request_id)
        stop = self._describe_stop(request) if watch is not None else None
        if stop is not None and not stop["paused"] and not request.streaming_queue:
            if request.resumable:
                self._closing.add(request_id)
            return True
        preempted = request.num_computed_tokens == 0
        finished = super()._handle_stopped_request(request)
        if not finished and request.status == RequestStatus.WAITING_FOR_STREAMING_REQ:
            self._pause(request, preempted)
        return finished

    def _describe_stop(self, request: Request) -> dict[str, Any]:
        """Write what the client is told with the last token of the turn."""
        request_id = request.request_id
        verdict = self._stops.get(request_id, _NOTHING).get("verdict")
        called = verdict == Verdict.CALL.value and request.status == RequestStatus.FINISHED_STOPPED
        resume = self._resumes.pop(request_id, None)
        stop = {
            "paused": called and request.resumable,
            "verdict": verdict,
            "resume": asdict(resume) if resume is not None else None,
        }
        self._stops[request_id] = stop
        return stop

    def _pause(self, request: Request, preempted: bool) -> None:
        pause = Pause(request.request_id, self._clock(), request.num_computed_tokens)
        pause.take(Step.PAUSE)
        self._pauses[request.request_id] = pause
        if preempted:
            # Its last token was in flight when it lost its blocks (asynchronous scheduling only).
            # All tokens but that one count as computed, as in every other pause.
            pause.frontier_tokens = request.num_tokens - 1
            pause.take(Step.RECLAIM)
            self._displaced.append(request)
        if request.request_id not in self._watches:
            self._slot_holders.add(request.request_id)
            return
        # The runner frees the slot of a preempted request, and its next chunk arrives as a new
        # request with computed tokens. Blocks are the scheduler's business, not the runner's.
        self.reset_preempted_req_ids.add(request.request_id)

    def drop_kv(self, request_id: str) -> None:
        """Discard the KV cache of a paused or resuming request.

        The blocks go back to the pool but stay findable in the prefix cache until they are
        evicted, so that an early resume still finds most of them.
        """
        request = self.requests[request_id]
        self._pauses[request_id].take(Step.RECLAIM)
        self._free_request_blocks(request)
        self.encoder_cache_manager.free(request)
        self.kv_holding_waiting.remove_request(request)
        request.num_computed_tokens = 0
        self.waiting.prepend_request(request)

    def reset_prefix_cache(
        self, reset_running_requests: bool = False, reset_connector: bool = False
    ) -> bool:
        """Reset the prefix cache; paused requests give up their blocks, which would prevent it."""
        for request_id, pause in self._pauses.items():
            if pause.held:
                self.drop_kv(request_id)
        return super().reset_prefix_cache(reset_running_requests, reset_connector)

    # -- what goes out ---------------------------------------------------------------------------

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: Any
    ) -> dict[int, Any]:
        """Process a step's tokens; stops carry their report, control messages their answers."""
        outputs = super().update_from_output(scheduler_output, model_runner_output)
        if self._displaced:
            # vLLM takes requests that stopped while they were preempted out of its queues.
            for request in self._displaced:
                self.waiting.prepend_request(request)
                self.deferred_waiting.add(request)
            self._displaced.clear()
        if self._stops:
            for of_client in outputs.values():
                for output in of_client.outputs:
                    if output.finish_reason is not None and output.request_id in self._stops:
                        report = {REPORT_KEY: self._stops[output.request_id]}
                        output.kv_transfer_params = {**(output.kv_transfer_params or {}), **report}
            self._stops.clear()
        if self._control is not None:
            self._control.answer(outputs)
        return outputs

    def has_requests(self) -> bool:
        """Keep the engine stepping while a control message waits for its answer."""
        return super().has_requests() or (self._control is not None and self._control.owes_answers)

    def _free_request(self, request: Request, delay_free_blocks: bool = False) -> Any:
        request_id = request.request_id
        if self._watches:
            self._watches.pop(request_id, None)
        if self._resumes:
            self._resumes.pop(request_id, None)
        if self._pauses:
            pause = self._pauses.pop(request_id, None)
            if pause is not None:
                self._slot_holders.discard(request_id)
                pause.take(Step.CLOSE)
        return super()._free_request(request, delay_free_blocks=delay_free_blocks)


class CaesuraScheduler(PausingScheduler):
    """For engines without asynchronous scheduling."""


class CaesuraAsyncScheduler(PausingScheduler, AsyncScheduler):
    """For engines with asynchronous scheduling, vLLM's default on GPUs."""
