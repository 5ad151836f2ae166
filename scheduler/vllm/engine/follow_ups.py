"""Retention of the KV cache of a request that ended with a call, until its follow-up arrives.

A client that runs its own tools ends its request at the call and sends a new one with the result.
The scheduler detects the call in the tokens, without a hint from the client. It prices the blocks
like those of a paused request. The follow-up is recognised by its prefix, from any client.

Where the prefix cache finds single blocks, the full ones are kept there, and vLLM finds them. In
other models a request has more than its full blocks, such as a recurrent state at its last token.
There all of its blocks are kept as they are. The follow-up takes them over if its tokens go on
where they end, and computes only what is new.
"""

import logging
from collections.abc import Hashable, Iterable, Sequence

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.request import Request

from caesura.intercept.calls.watch import Call
from caesura.scheduler.vllm.engine.calls import CallDetector
from caesura.scheduler.vllm.engine.connector import CaesuraConnector
from caesura.scheduler.vllm.engine.kv.manager import PausedKVManager
from caesura.scheduler.vllm.engine.kv.paused_kvs import PausedKVs
from caesura.scheduler.vllm.engine.port import EngineState
from caesura.scheduler.vllm.engine.port.blocks import Block, findable_prefix
from caesura.scheduler.vllm.engine.port.requests import (
    computed_tokens,
    has_stopped,
    is_not_admitted,
    may_reuse,
)
from caesura.scheduler.vllm.engine.sessions.served import (
    Clock,
    PausedKV,
    Served,
    ServedRequests,
    SessionState,
)
from caesura.scheduler.vllm.engine.sessions.sessions import Sessions

logger = logging.getLogger(__name__)

MARK_TOKENS = 32
"""Distance of the places at which the tokens of requests are compared by a hash.

Shorter KV is not kept, where a whole request is.
"""


class FollowUps:
    """Retains the KV of a request that finished with a call, until its follow-up uses it."""

    def __init__(
        self,
        port: EngineState,
        manager: PausedKVManager,
        paused_kvs: PausedKVs,
        served: ServedRequests,
        sessions: Sessions,
        detector: CallDetector,
        clock: Clock,
        seconds: float,
    ) -> None:
        """Create it; KV is retained for `seconds`, and not at all with 0."""
        self._port = port
        self._manager = manager
        self._paused_kvs = paused_kvs
        self._served = served
        self._sessions = sessions
        self._detector = detector
        self._clock = clock
        obstacle = _obstacle(port)
        self._whole = not port.layout.findable
        """Whether all blocks of a request are kept, for its follow-up to take over."""
        self.enabled = seconds > 0 and not obstacle
        if seconds > 0 and obstacle:
            logger.warning("KV is not kept for the follow-ups of clients' calls: %s", obstacle)
        self._by_key: dict[Hashable, PausedKV] = {}

    # -- the end of a request --------------------------------------------------------------------

    def finished(self, served: Served) -> bool:
        """Retain the KV of a request about to be freed; return whether its session may continue."""
        request, followed = served.request, self._served.stop_following(served)
        if followed is not None:
            self._close(followed)
        paused = self._paused_kvs.get(request.request_id)
        if paused is not None and has_stopped(request):
            if not served.session.final:
                self._take_over(request, paused)
            self._sessions.left(served)
            return True
        call = self._call_of(served)
        if call is None:
            return False
        self._sessions.passed_on(served, call.tool, bytes(call.text))
        if not served.session.final:
            self._retain(request, call.tool, served.session)
        return True

    def _call_of(self, served: Served) -> Call | None:
        """Return the call for the client with which the request ended, or None."""
        request = served.request
        if not has_stopped(request) or not self.enabled:
            return None
        if request.request_id in self._paused_kvs or not request.output_token_ids:
            return None
        return self._detector.called(request, served.watch)

    def _retain(self, request: Request, tool: str | None, session: SessionState) -> None:
        blocks = [] if self._whole else self._findable_blocks(request)
        tokens = len(blocks) * self._port.attention_tokens
        if self._whole:
            tokens = self._port.settled_tokens(request) or 0
        if tokens < (MARK_TOKENS if self._whole else 1):
            return
        now, paused_kvs = self._clock(), self._paused_kvs
        kv = self._manager.open(request, None, tokens, now, tool, session)
        if self._whole:
            paused_kvs.blocks.keep(kv)
            self._manager.note(kv, kv.since)
        else:
            # They are counted now, while only the request holds them, before it frees them.
            kv.detached = blocks
            self._manager.note(kv, kv.since)
            paused_kvs.blocks.reference(kv)
        self._list(kv)

    def _take_over(self, request: Request, kv: PausedKV) -> None:
        """Retain the KV of a paused request, as far as a follow-up can use it."""
        if kv.detached is None:
            if self._whole and self.enabled and kv.context_tokens >= MARK_TOKENS:
                self._paused_kvs.blocks.keep(kv)
            elif not self._whole:
                blocks = self._findable_blocks(request)
                if blocks:
                    kv.detached = blocks
                    self._paused_kvs.blocks.reference(kv)
        if kv.detached or kv.kept_as is not None or (self.enabled and kv.swapped):
            self._paused_kvs.retain(kv)
            self._list(kv)

    def _findable_blocks(self, request: Request) -> list[Block]:
        """Return the front blocks of a request that the prefix cache can find."""
        blocks = self._port.blocks_of(request.request_id)
        full = (request.num_tokens - 1) // self._port.attention_tokens
        full = min(full, len(blocks), len(request.block_hashes))
        return list(blocks[: findable_prefix(blocks, full)])

    def _list(self, kv: PausedKV) -> None:
        """Index retained KV by the prefixes that identify its follow-up."""
        prompt, keys = kv.request.num_prompt_tokens, list[Hashable](kv.keys)
        if self._whole:
            keys = _marks(kv.request.all_token_ids[: kv.context_tokens])
            full, in_prompt = len(keys), prompt // MARK_TOKENS
        else:
            full = min(len(keys), len(kv.detached or ()))
            in_prompt = prompt // self._port.attention_tokens
        # A client that renders the conversation again may change the last turn, so the prompt
        # identifies the follow-up too.
        for place in {full, min(in_prompt, full)} - {0}:
            self._by_key[keys[place - 1]] = kv

    # -- the follow-up ---------------------------------------------------------------------------

    def arrives(self, request: Request) -> PausedKV | None:
        """Return retained KV for a request about to be added, if it follows the KV's request.

        All blocks of a request change hands now, so that vLLM queues the follow-up among those
        that hold KV.
        """
        if not self._by_key:
            return None
        keys = _marks(request.all_token_ids) if self._whole else request.block_hashes
        for kv in self._found(keys):
            if kv.follow_up is not None or not _follows(request, kv):
                continue
            kv.follow_up = request.request_id
            if self._whole and self._extends(request, kv):
                if kv.kept_as is not None:
                    self._paused_kvs.adopt(kv, request)
                else:
                    self._manager.offer(kv, request)
            return kv
        return None

    def _found(self, keys: Sequence[Hashable]) -> Iterable[PausedKV]:
        """Yield the KV that is listed under some of the keys, the longest prefix first."""
        for key in reversed(keys):
            kv = self._by_key.get(key)
            if kv is None:
                continue
            if kv.key in self._paused_kvs:
                yield kv
            else:
                self._unlist(kv)

    def _extends(self, request: Request, kv: PausedKV) -> bool:
        """Return whether the blocks of KV are those of the first tokens of a longer request."""
        tokens = kv.context_tokens
        if self._port.is_paused() or request.num_tokens <= tokens:
            return False
        same = request.all_token_ids[:tokens] == kv.request.all_token_ids[:tokens]
        return same and may_reuse(request, kv.request)

    def after_step(self, output: SchedulerOutput) -> None:
        """Release the KV that follow-ups, admitted by the scheduled step, now hold themselves."""
        for served in list(self._served.following.values()):
            request = served.request
            if is_not_admitted(request):
                continue
            kv = self._served.stop_following(served)
            assert kv is not None
            scheduled = output.num_scheduled_tokens.get(request.request_id, 0)
            computed = computed_tokens(request) - scheduled
            shared = kv.shared_tokens(request, self._port.hash_tokens)
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


def _obstacle(port: EngineState) -> str:
    """Return why the KV of a finished request is not kept for its follow-up, or an empty text."""
    other = port.connector is not None and not isinstance(port.connector, CaesuraConnector)
    if other and not port.layout.plain:
        return "another KV connector than Caesura's follows the blocks of each request"
    return port.layout.no_follow_ups


def _follows(request: Request, kv: PausedKV) -> bool:
    """Return whether the request is longer than the prompt, so not the same prompt repeated."""
    return request.num_tokens > kv.request.num_prompt_tokens


def _marks(tokens: Sequence[int]) -> list[Hashable]:
    """Return a hash of the tokens up to each multiple of `MARK_TOKENS`."""
    marks: list[Hashable] = []
    mark = 0
    for end in range(MARK_TOKENS, len(tokens) + 1, MARK_TOKENS):
        mark = hash((mark, *tokens[end - MARK_TOKENS : end]))
        marks.append(mark)
    return marks
