"""The pauses of a scheduler's requests, from the stop at a call to the step that resumes them."""

import logging

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.request import Request, StreamingUpdate

from caesura.intercept.kv.states import Pause, State, Step
from caesura.scheduler.vllm.engine.kv.manager import PausedKVManager
from caesura.scheduler.vllm.engine.kv.paused_kvs import PausedKVs
from caesura.scheduler.vllm.engine.port import EngineState, Stop
from caesura.scheduler.vllm.engine.port.engine_state import OF_CHUNK
from caesura.scheduler.vllm.engine.port.layout import RECURRENT
from caesura.scheduler.vllm.engine.port.requests import computed_tokens, repeats_last_token
from caesura.scheduler.vllm.engine.sessions.served import Clock, Served, ServedRequests
from caesura.scheduler.vllm.engine.sessions.sessions import Sessions

logger = logging.getLogger(__name__)

ALWAYS_DISCARDED = (
    "%s: the KV cache of a request that pauses is discarded. A resume recomputes what the prefix"
    " cache does not have"
)
SPOILT = (
    "the KV cache of request %s is discarded, since its recurrent state holds other tokens: %s."
    " This is logged once"
)


class Pauses:
    """Opens, resumes and closes the pauses of one scheduler."""

    def __init__(
        self,
        port: EngineState,
        manager: PausedKVManager,
        paused_kvs: PausedKVs,
        served: ServedRequests,
        sessions: Sessions,
        clock: Clock,
    ) -> None:
        self._port = port
        self._manager = manager
        self._paused_kvs = paused_kvs
        self._served = served
        self._sessions = sessions
        self._clock = clock
        self._spoilt: list[Request] = []
        """Requests that stopped in this step, whose KV must not be used again."""
        self._said = {port.layout.discards}
        """The reasons for spoilt KV that were logged."""
        if port.layout.discards:
            logger.warning(ALWAYS_DISCARDED, port.layout.discards)

    @property
    def kept_slots(self) -> int:
        """Return how many paused sessions keep their runner slot.

        Only unwatched sessions keep it, as vLLM's own tests require.
        """
        return len(self._served.slot_keepers)

    def stopped(self, request: Request, stop: Stop) -> None:
        """Note that a session has stopped, whether it waits or has its next chunk."""
        if stop.spoilt:
            self._spoilt.append(request)
            self._say(request, stop.spoilt)

    def _say(self, request: Request, why: str) -> None:
        """Log, once for each reason, why KV is spoilt."""
        if why not in self._said:
            self._said.add(why)
            logger.warning(SPOILT, request.request_id, why)

    def discard_spoilt(self) -> None:
        """Discard the KV of sessions that stopped in this step, if it may hold other tokens.

        What the prefix cache has is right: a block is only found there under the tokens at whose
        end its state was left, and later tokens went to another block.
        """
        for request in self._spoilt:
            kv = self._paused_kvs.get(request.request_id)
            if kv is not None:
                self._manager.spoil(kv, self._clock(), self._port.layout.discards_as)
            elif self._port.request(request.request_id) is request:
                self._port.detach(request, None)
        self._spoilt.clear()

    def begin(self, served: Served, stop: Stop) -> None:
        """Pause a request that stopped at a call.

        An unwatched session, as stock vLLM has them, stays in vLLM's queues, as vLLM's own tests
        require.
        """
        request, watch = served.request, served.watch
        pause = Pause(request.request_id, self._clock(), computed_tokens(request) + stop.ahead)
        pause.take(Step.PAUSE)
        self._served.open_pause(served, pause, keeps_slot=watch is None)
        self._served.stop_recomputing(served)
        if stop.preempted:
            # As in every other pause, all tokens but the last count as computed.
            pause.frontier_tokens = request.num_tokens - 1
            pause.take(Step.RECLAIM)
            self._port.keep_in_queue(request)
        tool, hint = watch.awaited() if watch is not None else (None, None)
        text = bytes(watch.calls[-1].text) if watch is not None and watch.calls else b""
        if tool is not None and hint is not None:
            self._sessions.expect_pause(tool, hint.seconds)
            pause.deadline_seconds = hint.deadline_seconds
        self._sessions.called(served, tool, text)
        self._manager.paused(request, pause, tool, served.session)
        if watch is None:
            return
        self._port.park(request)
        # The runner frees the slot as for a preempted request. The next chunk then reaches it as a
        # new request with computed tokens. The scheduler, not the runner, owns the blocks.
        self._port.give_slot_back(request.request_id)

    def expect(self, request_id: str, seconds: float) -> bool:
        """Take a forecast that a request's pause lasts `seconds` more; return if it is paused.

        `request_id` is the client's, or the engine's own. Raises `ValueError` for seconds that are
        not positive and finite.
        """
        served = self._served.find_paused(request_id)
        if served is None or served.pause is None or served.pause.state is not State.PAUSED:
            return False
        self._manager.expect(self._paused_kvs[served.request_id], seconds, self._clock())
        return True

    def before_chunk(self, served: Served, update: StreamingUpdate) -> None:
        """Prepare a session for the result of its tool, before that is appended.

        If the KV is dropped, the frontier replaces the computed tokens, so that no decoded token
        is lost. vLLM drops the last sampled token, which the update repeats. If the KV has that
        token, it must not be computed again. So KV is discarded if the update begins otherwise.
        """
        session, pause = served.request, served.pause
        if pause is None:
            return
        self._served.give_slot_back(served)
        last = session.num_tokens - 1
        if pause.frontier_tokens > last and not repeats_last_token(session, update):
            self._say(session, OF_CHUNK)
            self._manager.spoil(self._paused_kvs[session.request_id], self._clock(), RECURRENT)
        frontier = None if pause.held else min(pause.frontier_tokens, last)
        self._port.before_chunk(session, frontier)

    def after_chunk(self, served: Served, update: StreamingUpdate) -> None:
        """Queue a session after its next chunk, which is the result of its tool, was appended."""
        pause = served.pause
        if pause is None:
            self._sessions.continued(served)
            return
        now, kv = self._clock(), self._paused_kvs[served.request_id]
        pause.take(Step.RETURN, now)
        self._manager.returned(kv, now)
        self._port.after_chunk(served.request, kv.session.arrival, dropped=not pause.held)
        returned = len(update.prompt_token_ids or ()) - 1  # the first is the last one sampled
        if pause.held and pause.frontier_tokens > computed_tokens(served.request):
            self._port.advance(served.request)
        self._sessions.returned(served, kv.tool, max(0, returned), now)

    def admitted(self, output: SchedulerOutput) -> None:
        """Close the pauses of the requests that run again with this step."""
        now = self._clock()
        cached = output.scheduled_cached_reqs.resumed_req_ids
        admitted = output.num_scheduled_tokens if output.scheduled_new_reqs or cached else {}
        for request_id, scheduled in admitted.items():
            served = self._served.paused.get(request_id)
            pause = served.pause if served is not None else None
            if served is None or pause is None or pause.state is not State.RESUMING:
                continue
            pause.take(Step.ADMIT)
            computed = computed_tokens(served.request) - scheduled
            served.resumed = self._manager.admitted(pause, computed, now)
            if computed < pause.frontier_tokens:
                self._served.recompute(served, pause.frontier_tokens)
            self._served.close_pause(served)

    def is_left(self, end: Request) -> bool:
        """Return whether a chunk closes the input of a watched request while it is paused."""
        served = self._served.paused.get(end.request_id)
        pause = served.pause if served is not None else None
        if end.resumable or pause is None or pause.state is not State.PAUSED:
            return False
        return end.request_id not in self._served.slot_keepers

    def ended(self, served: Served) -> None:
        """Close the pause of a request that is about to be freed, in any state."""
        if served.pause is not None:
            served.pause.take(Step.CLOSE)
            kv = self._paused_kvs[served.request_id]
            if kv.pause is not None:  # otherwise it is retained for a follow-up
                self._manager.close(kv, self._clock())
