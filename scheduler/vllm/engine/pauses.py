"""The pauses of a scheduler's requests, from the stop at a call to the step that resumes them."""

import logging

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.request import Request, StreamingUpdate

from caesura.intercept.calls.events import ResumeReport
from caesura.intercept.calls.watch import Watch
from caesura.intercept.kv.states import Pause, State, Step
from caesura.scheduler.vllm.engine.kv.manager import PausedKVManager
from caesura.scheduler.vllm.engine.kv.paused_kvs import PausedKVs
from caesura.scheduler.vllm.engine.port import EngineState, Stop
from caesura.scheduler.vllm.engine.port.engine_state import OF_CHUNK
from caesura.scheduler.vllm.engine.port.requests import computed_tokens, repeats_last_token
from caesura.scheduler.vllm.engine.sessions.session import Clock
from caesura.scheduler.vllm.engine.sessions.sessions import Sessions
from caesura.scheduler.vllm.engine.steps import Chunking

logger = logging.getLogger(__name__)

RECURRENT = "recurrent state"
"""Why KV is discarded whose recurrent state may hold other tokens, in records."""

ALWAYS_SPOILT = (
    "this model has recurrent state, and %s: the KV cache of a request that pauses is discarded. A"
    " resume recomputes what the prefix cache does not have"
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
        sessions: Sessions,
        chunking: Chunking,
        clock: Clock,
    ) -> None:
        self._port = port
        self._manager = manager
        self._paused_kvs = paused_kvs
        self._sessions = sessions
        self._chunking = chunking
        self._clock = clock
        self.open: dict[str, Pause] = {}
        """The pauses by their request's id: `PAUSED`, or `RESUMING` until their request runs."""
        self._names: dict[str, str] = {}
        """The ids of paused requests by those that their clients know."""
        self._reports: dict[str, ResumeReport] = {}
        self._slot_holders: set[str] = set()
        self._spoilt: list[Request] = []
        """Requests that stopped in this step, whose KV must not be used again."""
        self._said = {port.always_spoilt}
        """The reasons for spoilt KV that were logged."""
        if port.always_spoilt:
            logger.warning(ALWAYS_SPOILT, port.always_spoilt)

    @property
    def kept_slots(self) -> int:
        """Return how many paused sessions keep their runner slot.

        Only unwatched sessions keep it, as vLLM's own tests require.
        """
        return len(self._slot_holders)

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
                self._manager.drop(kv, self._clock(), RECURRENT)
            elif self._port.request(request.request_id) is request:
                self._port.detach(request, None)
        self._spoilt.clear()

    def begin(self, request: Request, stop: Stop, watch: Watch | None) -> None:
        """Pause a request that stopped at a call.

        Without a `watch` the request is an unwatched session, as stock vLLM has them. It stays in
        vLLM's queues, as vLLM's own tests require.
        """
        pause = Pause(request.request_id, self._clock(), computed_tokens(request) + stop.ahead)
        pause.take(Step.PAUSE)
        self.open[request.request_id] = pause
        self._names[_clients_id(request.request_id)] = request.request_id
        self._chunking.end(request.request_id)
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
        self._manager.paused(request, pause, tool, self._sessions.called(request, tool, text))
        if watch is None:
            self._slot_holders.add(request.request_id)
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
        name = request_id if request_id in self.open else self._names.get(request_id, "")
        pause = self.open.get(name)
        if pause is None or pause.state is not State.PAUSED:
            return False
        self._manager.expect(self._paused_kvs[name], seconds, self._clock())
        return True

    def before_chunk(self, session: Request, update: StreamingUpdate) -> None:
        """Prepare a session for the result of its tool, before that is appended.

        If the KV is dropped, the frontier replaces the computed tokens, so that no decoded token
        is lost. vLLM drops the last sampled token, which the update repeats. If the KV has that
        token, it must not be computed again. So KV is discarded if the update begins otherwise.
        """
        pause = self.open.get(session.request_id)
        if pause is None:
            return
        self._slot_holders.discard(session.request_id)
        last = session.num_tokens - 1
        if pause.held and pause.frontier_tokens > last and not repeats_last_token(session, update):
            self._say(session, OF_CHUNK)
            self._manager.drop(self._paused_kvs[session.request_id], self._clock(), RECURRENT)
        frontier = None if pause.held else min(pause.frontier_tokens, last)
        self._port.before_chunk(session, frontier)

    def after_chunk(self, session: Request, update: StreamingUpdate) -> None:
        """Queue a session after the result of its tool was appended."""
        pause = self.open.get(session.request_id)
        if pause is None:
            return
        now, kv = self._clock(), self._paused_kvs[session.request_id]
        pause.take(Step.RETURN, now)
        self._manager.returned(kv, now)
        returned = len(update.prompt_token_ids or ()) - 1  # the first is the last one sampled
        self._sessions.answered(session, kv.tool, max(0, returned), now)
        self._port.after_chunk(session, kv.session.arrival, dropped=not pause.held)
        if pause.held and pause.frontier_tokens > computed_tokens(session):
            self._port.advance(session)

    def admitted(self, output: SchedulerOutput) -> None:
        """Close the pauses of the requests that run again with this step."""
        now = self._clock()
        cached = output.scheduled_cached_reqs.resumed_req_ids
        admitted = output.num_scheduled_tokens if output.scheduled_new_reqs or cached else {}
        for request_id, scheduled in admitted.items():
            pause = self.open.get(request_id)
            if pause is None or pause.state is not State.RESUMING:
                continue
            request = self._port.request(request_id)
            assert request is not None
            pause.take(Step.ADMIT)
            computed = computed_tokens(request) - scheduled
            self._reports[request_id] = self._manager.admitted(pause, computed, now)
            self._chunking.begin(request_id, computed, pause.frontier_tokens)
            self._forget(request_id)

    def is_left(self, end: Request) -> bool:
        """Return whether a chunk closes the input of a watched request while it is paused."""
        pause = self.open.get(end.request_id)
        if end.resumable or pause is None or pause.state is not State.PAUSED:
            return False
        return end.request_id not in self._slot_holders

    def take_report(self, request_id: str) -> ResumeReport | None:
        """Return and remove the report on how a request resumed, or return None."""
        return self._reports.pop(request_id, None) if self._reports else None

    def ended(self, request_id: str) -> None:
        """Close the pause of a request that is about to be freed, in any state."""
        self._chunking.end(request_id)
        self._reports.pop(request_id, None)
        pause = self._forget(request_id)
        if pause is not None:
            self._slot_holders.discard(request_id)
            pause.take(Step.CLOSE)
            kv = self._paused_kvs[request_id]
            if kv.pause is not None:  # otherwise it is retained for a follow-up
                self._manager.close(kv, self._clock())

    def _forget(self, request_id: str) -> Pause | None:
        """Remove and return the open pause of a request."""
        name = _clients_id(request_id)
        if self._names.get(name) == request_id:  # else another request of this client's id paused
            del self._names[name]
        return self.open.pop(request_id, None)


def _clients_id(request_id: str) -> str:
    """Return the id that a client knows a request by: vLLM appends a `-` and a random number."""
    return request_id.rpartition("-")[0] or request_id
