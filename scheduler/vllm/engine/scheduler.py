"""vLLM's own scheduler with pause and resume, by overrides that call vLLM's methods.

A session never leaves the engine. When the model calls a tool, vLLM's scheduler stops scheduling
the request and waits for tokens from outside. No token is rendered, sent or admitted a second time.
The only decision left is about the KV cache meanwhile.

The handling prices this decision in block-seconds. Its inputs are the tool's expected duration
(learned), the cost of a step and of a copied block (measured), and the demand of other requests
for blocks. KV that was discarded is recomputed, in chunks that fit beside the running batch. KV on
the host is loaded, within the link's capacity during a step. Preserved KV is never locked: the
scheduler can reclaim it at every step, block by block, least regret first.

A request that Caesura watches is a resumable session of vLLM ("streaming input"). It differs from
vLLM's stock sessions in three ways, so that a pause never blocks other requests:

- the scheduler may release its KV cache at any step, block by block;
- it gives its runner slot back, so `max_num_seqs` limits running requests and not sessions
  (unwatched sessions keep their slots, as vLLM's own tests require);
- a turn that ends without a call finishes the request at once instead of waiting for the client.
"""

from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request, RequestStatus, StreamingUpdate

from caesura.scheduler.vllm.engine.compose import Dependencies, Parts, compose
from caesura.scheduler.vllm.engine.port.grammar_backend import use_both_backends
from caesura.scheduler.vllm.engine.port.requests import computed_tokens, stop, waits_for_tool


class PausingScheduler(Scheduler):
    """vLLM's scheduler with pause and resume; a mixin for every scheduler derived from it."""

    parts: Parts

    def __init__(self, *args: Any, dependencies: Dependencies | None = None, **kwargs: Any) -> None:
        """Create vLLM's scheduler; `dependencies` replace those of this process."""
        super().__init__(*args, **kwargs)
        use_both_backends(self.structured_output_manager)
        self.parts = compose(self, dependencies or Dependencies())

    # -- what comes in ---------------------------------------------------------------------------

    def add_request(self, request: Request) -> None:
        """Add a request, a session's next chunk, its end, or a control message."""
        parts, request_id = self.parts, request.request_id
        known = parts.port.request(request_id) is not None
        if parts.control.take(request) or (not known and parts.stops.is_goodbye(request_id)):
            parts.port.is_over(request.client_index, request_id)
            return
        if known and parts.follow_ups.enabled and parts.pauses.is_left(request):
            # The request has ended at its call, since the client sends the result in a new one.
            self.finish_requests(request_id, RequestStatus.FINISHED_STOPPED)
            return
        if known and (served := parts.served.get(request_id)) is not None:
            served.grammars.arrived(request)
        followed = None if known else parts.follow_ups.arrives(request)
        super().add_request(request)
        if known:
            return
        now = parts.clock()
        if followed is not None:
            parts.manager.returned(followed, now)
        served = parts.sessions.arrived(request, now, followed)
        served.grammars.begin(request)
        parts.stops.watch(served)

    def _update_request_as_session(self, session: Request, update: StreamingUpdate) -> None:
        """Append a tool's result to its session, with the grammar of the next turn."""
        parts = self.parts
        served = parts.served.get(session.request_id)
        if served is None:  # vLLM's own tests make sessions that never arrived
            super()._update_request_as_session(session, update)
            return
        parts.pauses.before_chunk(served, update)
        super()._update_request_as_session(session, update)
        parts.pauses.after_chunk(served, update)
        served.grammars.apply(session)
        parts.stops.watch(served)

    def finish_requests(self, request_ids: Any, finished_status: RequestStatus) -> list[Request]:
        """Finish requests in any state, for example at an abort."""
        if isinstance(request_ids, str):
            request_ids = (request_ids,)
        elif request_ids is not None:
            request_ids = tuple(request_ids)
        self.parts.stops.aborted(request_ids)
        return super().finish_requests(request_ids, finished_status)

    # -- the step --------------------------------------------------------------------------------

    def schedule(self, throttle_prefills: bool = False) -> SchedulerOutput:
        """Schedule a step, after applying the handling's decisions on paused KV."""
        parts, now = self.parts, self.parts.clock()
        manager, kept_slots = parts.manager, parts.pauses.kept_slots
        manager.before_step(now)
        with parts.port.step(parts.chunking.limit(), kept_slots):
            parts.admission.prepare(kept_slots)
            manager.copies(now)
            output = super().schedule(throttle_prefills)
        parts.port.tell_again(output)
        parts.queue.after_step()
        parts.sessions.admitted(output)
        if parts.paused_kvs:
            parts.pauses.admitted(output)
            manager.after_step()
            parts.follow_ups.after_step(output)
            if parts.reclaim.unwedge(output):
                parts.admission.leave_to_vllm()
        else:
            parts.follow_ups.at_rest()
        parts.step_costs.scheduled(output, now)
        if parts.shares is not None:
            parts.shares.scheduled(output)
        return output

    def _preempt_request(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Preempt a running request, and record it."""
        computed = computed_tokens(request)
        super()._preempt_request(request, *args, **kwargs)
        self.parts.sessions.preempted(request, computed)

    def _update_request_with_output(
        self, request: Request, new_token_ids: list[int], is_stale: bool = False
    ) -> tuple[list[int], bool]:
        """Append decoded tokens, up to the watch's stop if there is one."""
        cut = self.parts.stops.cut(request, new_token_ids)
        kept, stopped = super()._update_request_with_output(
            request, new_token_ids, is_stale=is_stale
        )
        self.parts.port.cache.decoded(request)
        if cut and not stopped:
            stop(request)
        return kept, stopped or cut

    def _handle_stopped_request(self, request: Request) -> bool:
        """Pause a request whose turn holds a call; end one whose turn holds none."""
        parts = self.parts
        served = parts.served.get(request.request_id)
        if served is not None and parts.stops.ends(served):
            return True
        stop = parts.port.stops(request)
        if super()._handle_stopped_request(request):
            return True
        parts.pauses.stopped(request, stop)
        if waits_for_tool(request) and served is not None:
            parts.pauses.begin(served, stop)
        elif stop.preempted:
            parts.port.keep_in_queue(request)
        elif stop.ahead:
            parts.port.advance(request)  # its next chunk has come already
        return False

    # -- what goes out ---------------------------------------------------------------------------

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: Any
    ) -> dict[int, Any]:
        """Process a step's tokens, and answer control messages."""
        parts = self.parts
        outputs = super().update_from_output(scheduler_output, model_runner_output)
        parts.port.requeue_stopped()
        parts.pauses.discard_spoilt()
        parts.stops.attach(outputs)
        seconds = parts.step_costs.ended(scheduler_output, parts.clock())
        if parts.shares is not None:
            parts.shares.ended(scheduler_output, seconds)
        parts.manager.step_done(scheduler_output, model_runner_output)
        parts.control.answer(outputs)
        return outputs

    def _free_request(self, request: Request, delay_free_blocks: bool = False) -> Any:
        """Free a request that has ended; its KV may be retained for a follow-up."""
        parts, request_id = self.parts, request.request_id
        parts.manager.forget_copies(request)
        if (served := parts.served.get(request_id)) is not None:
            if not parts.follow_ups.finished(served):
                parts.sessions.ended(served)
            parts.pauses.ended(served)
            parts.sessions.forget(served, retained=request_id in parts.paused_kvs)
        parts.port.forget(request_id)
        return super()._free_request(request, delay_free_blocks=delay_free_blocks)

    # -- the engine ------------------------------------------------------------------------------

    def get_request_counts(self) -> tuple[int, int]:
        """Return the numbers of running and waiting requests; paused ones count as waiting."""
        running, waiting = super().get_request_counts()
        return running, waiting + len(self.parts.port.parked())

    def get_num_unfinished_requests(self) -> int:
        """Return the number of requests that can go on without a client."""
        port = self.parts.port
        # While only requests with KV go on, vLLM takes the paused ones for such, and subtracts all.
        missed = len(port.parked()) if port.is_paused() and not port.admits_nothing() else 0
        return int(super().get_num_unfinished_requests()) + missed

    def has_requests(self) -> bool:
        """Return whether the engine must step, also for unanswered messages and unsent records."""
        parts = self.parts
        return super().has_requests() or parts.control.owes_answers or parts.recorder.pending

    def reset_prefix_cache(
        self, reset_running_requests: bool = False, reset_connector: bool = False
    ) -> bool:
        """Reset the prefix cache, after releasing the paused blocks that would prevent it."""
        self.parts.manager.reset(self.parts.clock())
        return super().reset_prefix_cache(reset_running_requests, reset_connector)

    def reset_connector_cache(self) -> bool:
        """Drop every copy on the host."""
        done = bool(super().reset_connector_cache())
        self.parts.paused_kvs.recount()
        return done

    def shutdown(self) -> None:
        """Save what the predictors learned, and stop."""
        self.parts.sessions.close()
        super().shutdown()


class CaesuraScheduler(PausingScheduler):
    """The scheduler for engines without asynchronous scheduling."""


class CaesuraAsyncScheduler(PausingScheduler, AsyncScheduler):
    """The scheduler for engines with asynchronous scheduling, vLLM's default on GPUs."""
