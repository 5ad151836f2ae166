"""Keeping the KV cache of a request that ended with a call, until its follow-up comes.

A client that runs its own tools ends its request at the call and sends a new one with the result.
The engine sees the call in the tokens, with no word from the client, and keeps the blocks at the
same prices as those of a paused request. The follow-up is known by its prefix: whoever sends it.
"""

from typing import Any

from vllm.v1.request import Request, RequestStatus

from caesura.intercept.trigger import Watch
from caesura.scheduler.vllm.holding import Holding
from caesura.scheduler.vllm.keeper import Keeper
from caesura.scheduler.vllm.life import Life
from caesura.scheduler.vllm.lives import Lives
from caesura.scheduler.vllm.swap.host import Key
from caesura.scheduler.vllm.watching import Watcher

QUEUED = (
    RequestStatus.WAITING,
    RequestStatus.PREEMPTED,
    RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR,
)


class Retainer:
    """Opens a holding for a finished request with a call and closes it at its follow-up."""

    def __init__(self, scheduler: Any, keeper: Keeper, watcher: Watcher) -> None:
        self._scheduler = scheduler
        self._keeper = keeper
        self._watcher = watcher
        self._by_key: dict[Key, Holding] = {}
        self._expected: dict[str, Holding] = {}

    @property
    def enabled(self) -> bool:
        """Whether anything can be kept: it takes the prefix cache to find it again."""
        return self._keeper.settings.retention > 0 and self._keeper.mechanics.findable

    def finished(self, request: Request, watch: Watch | None, lives: Lives) -> None:
        """Look at a request that is about to be freed, and tell whether its session goes on."""
        self._forget_copies(request)
        follow_up_of = self._expected.pop(request.request_id, None)
        if follow_up_of is not None:
            self._close(follow_up_of)
        called, tool = self._called(request, watch)
        if called:
            self._retain(request, tool, lives.passes_on(request, tool))
            return
        life = lives.ended(request)
        if life is not None:
            self._keeper.ledger.ended_session(request, life)

    def _forget_copies(self, request: Request) -> None:
        """Drop copies that nobody can find again once the request has ended."""
        planner = self._keeper.planner
        if planner is not None and not request.block_hashes and planner.store.used:
            full = request.num_tokens // self._scheduler.block_size
            planner.store.forget(self._keeper.keys_of(request, full))

    def _called(self, request: Request, watch: Watch | None) -> tuple[bool, str | None]:
        """Tell whether it ended with a call that a client will answer, and of which tool."""
        if request.status != RequestStatus.FINISHED_STOPPED or not self.enabled:
            return False, None
        if request.request_id in self._keeper.holdings or not request.output_token_ids:
            return False, None
        return self._watcher.called(request, watch)

    def _retain(self, request: Request, tool: str | None, life: Life) -> None:
        keeper, block_size = self._keeper, self._scheduler.block_size
        blocks = self._scheduler.kv_cache_manager.get_blocks(request.request_id).blocks[0]
        full = min((request.num_tokens - 1) // block_size, len(blocks), len(request.block_hashes))
        while full and (blocks[full - 1].block_hash is None or blocks[full - 1].is_null):
            full -= 1
        if not full:
            return
        now = self._scheduler._clock()
        holding = keeper.open(request, None, full * block_size, now, tool, life)
        # Counted while the request alone holds them: it is about to let go.
        holding.detached = list(blocks[:full])
        keeper.note(holding, holding.since)
        keeper.mechanics.retain(holding)
        # A follow-up that was rendered anew may differ in the last turn: it is known by its
        # prompt too.
        prompt = min(request.num_prompt_tokens // block_size, full)
        for place in {full, prompt} - {0}:
            self._by_key[holding.keys[place - 1]] = holding

    def arrived(self, request: Request, lives: Lives) -> None:
        """See whether a new request follows one that was kept."""
        if not self._by_key:
            return
        for key in reversed(request.block_hashes):
            holding = self._by_key.get(key)
            if holding is not None and holding.follow_up is None and _follows(request, holding):
                if holding.key not in self._keeper.holdings:
                    self._unlist(holding)
                    continue
                holding.follow_up = request.request_id
                self._expected[request.request_id] = holding
                now = self._scheduler._clock()
                self._keeper.returned(holding, now)
                lives.follows(request, holding, now)
                return

    def followed(self, request_id: str) -> Holding | None:
        """Return what was kept for a request that has not run yet, if it follows another."""
        return self._expected.get(request_id)

    def after_step(self) -> None:
        """Let go of what follow-ups have taken over."""
        for request_id in list(self._expected):
            request = self._scheduler.requests.get(request_id)
            if request is None or request.status not in QUEUED:
                self._close(self._expected.pop(request_id))
        if len(self._by_key) > 2 * len(self._keeper.holdings) + 64:
            for holding in list(self._by_key.values()):
                if holding.key not in self._keeper.holdings:
                    self._unlist(holding)

    def _close(self, holding: Holding) -> None:
        self._unlist(holding)
        if self._keeper.holdings.get(holding.key) is holding:
            self._keeper.close(holding, self._scheduler._clock())

    def _unlist(self, holding: Holding) -> None:
        for key in [key for key, kept in self._by_key.items() if kept is holding]:
            del self._by_key[key]


def _follows(request: Request, holding: Holding) -> bool:
    """Whether it goes on where the other's prompt ended, and is not the same prompt once more."""
    return request.num_tokens > holding.request.num_prompt_tokens
