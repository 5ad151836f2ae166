"""Retention of the KV cache of a request that ended with a call, until its follow-up arrives.

A client that runs its own tools ends its request at the call and sends a new one with the result.
The scheduler detects the call in the tokens, without a hint from the client. It prices the blocks
like those of a paused request. The follow-up is recognised by its prefix, from any client.
"""

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.request import Request

from caesura.intercept.calls.watch import Call, Watch
from caesura.scheduler.vllm.engine.calls import CallDetector
from caesura.scheduler.vllm.engine.kv.manager import PausedKVManager
from caesura.scheduler.vllm.engine.kv.paused_kvs import PausedKVs
from caesura.scheduler.vllm.engine.port import EngineState
from caesura.scheduler.vllm.engine.port.blocks import Block, findable_prefix
from caesura.scheduler.vllm.engine.port.requests import (
    computed_tokens,
    has_stopped,
    is_not_admitted,
)
from caesura.scheduler.vllm.engine.sessions.paused_kv import PausedKV
from caesura.scheduler.vllm.engine.sessions.session import Clock, SessionState
from caesura.scheduler.vllm.engine.sessions.sessions import Sessions
from caesura.scheduler.vllm.engine.swap.host import Key


class FollowUps:
    """Retains the KV of a request that finished with a call, until its follow-up uses it."""

    def __init__(
        self,
        port: EngineState,
        manager: PausedKVManager,
        paused_kvs: PausedKVs,
        sessions: Sessions,
        detector: CallDetector,
        clock: Clock,
        seconds: float,
    ) -> None:
        """Create it; KV is retained for `seconds`, and not at all with 0."""
        self._port = port
        self._manager = manager
        self._paused_kvs = paused_kvs
        self._sessions = sessions
        self._detector = detector
        self._clock = clock
        self.enabled = seconds > 0 and port.single_blocks_findable
        """Whether KV is retained, which needs the prefix cache to find it again."""
        self._by_key: dict[Key, PausedKV] = {}
        self._expected: dict[str, PausedKV] = {}

    def finished(self, request: Request, watch: Watch | None) -> bool:
        """Retain the KV of a request about to be freed; return whether its session may continue."""
        follow_up_of = self._expected.pop(request.request_id, None)
        if follow_up_of is not None:
            self._close(follow_up_of)
        paused = self._paused_kvs.get(request.request_id)
        if paused is not None and has_stopped(request):
            self._take_over(request, paused)
            self._sessions.leaves(request)
            return True
        call = self._call_of(request, watch)
        if call is None:
            return False
        session = self._sessions.passes_on(request, call.tool, bytes(call.text))
        self._retain(request, call.tool, session)
        return True

    def _call_of(self, request: Request, watch: Watch | None) -> Call | None:
        """Return the call for the client with which the request ended, or None."""
        if not has_stopped(request) or not self.enabled:
            return None
        if request.request_id in self._paused_kvs or not request.output_token_ids:
            return None
        return self._detector.called(request, watch)

    def _retain(self, request: Request, tool: str | None, session: SessionState) -> None:
        manager, blocks = self._manager, self._findable_blocks(request)
        if not blocks:
            return
        now, tokens = self._clock(), len(blocks) * self._port.block_size
        kv = manager.open(request, None, tokens, now, tool, session)
        # The blocks are counted now, while only the request holds them, before it frees them.
        kv.detached = blocks
        manager.note(kv, kv.since)
        self._paused_kvs.blocks.reference(kv)
        self._list(kv)

    def _take_over(self, request: Request, kv: PausedKV) -> None:
        """Retain the KV of a paused request, as far as the prefix cache can find it."""
        if kv.detached is None:
            blocks = self._findable_blocks(request)
            if blocks:
                kv.detached = blocks
                self._paused_kvs.blocks.reference(kv)
        if kv.detached:
            self._paused_kvs.retain(kv)
            self._list(kv)

    def _findable_blocks(self, request: Request) -> list[Block]:
        """Return the front blocks of a request that the prefix cache can find."""
        blocks = self._port.blocks_of(request.request_id)
        full = (request.num_tokens - 1) // self._port.block_size
        full = min(full, len(blocks), len(request.block_hashes))
        return list(blocks[: findable_prefix(blocks, full)])

    def _list(self, kv: PausedKV) -> None:
        """Index retained KV by the prefixes that identify its follow-up."""
        full = min(len(kv.keys), len(kv.detached or ()))
        # A client that renders the conversation again may change the last turn, so the prompt
        # identifies the follow-up too.
        prompt = min(kv.request.num_prompt_tokens // self._port.block_size, full)
        for place in {full, prompt} - {0}:
            self._by_key[kv.keys[place - 1]] = kv

    def arrived(self, request: Request) -> None:
        """Assign retained KV to a new request, if it follows the KV's request."""
        if not self._by_key:
            return
        for key in reversed(request.block_hashes):
            kv = self._by_key.get(key)
            if kv is not None and kv.follow_up is None and _follows(request, kv):
                if kv.key not in self._paused_kvs:
                    self._unlist(kv)
                    continue
                kv.follow_up = request.request_id
                self._expected[request.request_id] = kv
                now = self._clock()
                self._manager.returned(kv, now)
                self._sessions.follows(request, kv.session, kv.tool, now)
                return

    def followed(self, request_id: str) -> PausedKV | None:
        """Return the KV retained for a follow-up that has not run yet, or None."""
        return self._expected.get(request_id)

    def after_step(self, output: SchedulerOutput) -> None:
        """Release the KV that follow-ups, admitted by the scheduled step, now hold themselves."""
        for request_id in list(self._expected):
            request = self._port.request(request_id)
            if request is None or not is_not_admitted(request):
                kv = self._expected.pop(request_id)
                if request is not None:
                    scheduled = output.num_scheduled_tokens.get(request_id, 0)
                    computed = computed_tokens(request) - scheduled
                    shared = kv.shared_blocks(request) * self._port.block_size
                    kv.lost_tokens = max(0, shared - computed)
                self._close(kv)
        if len(self._by_key) > 2 * len(self._paused_kvs) + 64:
            for kv in list(self._by_key.values()):
                if kv.key not in self._paused_kvs:
                    self._unlist(kv)

    def at_rest(self) -> None:
        """Forget every retained request, while nobody's KV is retained."""
        self._by_key.clear()

    def _close(self, kv: PausedKV) -> None:
        self._unlist(kv)
        if self._paused_kvs.get(kv.key) is kv:
            self._manager.close(kv, self._clock())

    def _unlist(self, kv: PausedKV) -> None:
        for key in [key for key, kept in self._by_key.items() if kept is kv]:
            del self._by_key[key]


def _follows(request: Request, kv: PausedKV) -> bool:
    """Return whether the request is longer than the prompt, so not the same prompt repeated."""
    return request.num_tokens > kv.request.num_prompt_tokens
