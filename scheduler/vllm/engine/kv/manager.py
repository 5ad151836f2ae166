"""The manager of paused KV, which carries out the decisions of the chosen handling.

The handling is a pure policy over numbers. Before a step it receives the views of all paused KV
and of the engine (`views`). The manager then releases blocks and requests copies. When a step needs
blocks, the handling chooses the first ones to release. Every event is told to the recorder.

Swaps use the link's budget first, in the order of their decisions. The rest copies KV that stays
resident, so that a later eviction costs nothing (write-behind). Write-behind begins only when few
blocks are free. The bandwidth is learned from copies, and decides if swapping pays.
"""

import logging
from collections.abc import Iterable, Sequence

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request

from caesura.intercept.calls.events import ResumeReport
from caesura.intercept.kv.costs import COPY_TOKENS, CostTracker
from caesura.intercept.kv.handling import make_handling
from caesura.intercept.kv.states import Pause, State
from caesura.intercept.kv.step_budget import copy_order, writes_behind
from caesura.intercept.kv.views import Decision, Handling, Prices
from caesura.intercept.kv.waste import prices
from caesura.scheduler.programs import Origin
from caesura.scheduler.settings import Settings
from caesura.scheduler.vllm.engine.kv.paused_kvs import PausedKVs, can_lose
from caesura.scheduler.vllm.engine.kv.views import PolicyViews
from caesura.scheduler.vllm.engine.port import Block, EngineState
from caesura.scheduler.vllm.engine.sessions.recorder import Recorder
from caesura.scheduler.vllm.engine.sessions.served import PausedKV, Release, SessionState
from caesura.scheduler.vllm.engine.sessions.sessions import Sessions
from caesura.scheduler.vllm.engine.swap.host import Key, Whole, keys_of, whole_of
from caesura.scheduler.vllm.engine.swap.planner import SwapPlanner

logger = logging.getLogger(__name__)


PROBE_SECONDS = 5.0
"""Interval between the copies that measure a link over which nothing is swapped."""


ALONE = 4.0
"""How much faster the link must be for a request that is alone: by default, as recomputation."""


class Offload:
    """Chooses the blocks that the planner copies in the next step."""

    def __init__(
        self,
        planner: SwapPlanner,
        paused_kvs: PausedKVs,
        views: PolicyViews,
        write_behind_free_share: float,
    ) -> None:
        """Create it; write-behind begins below `write_behind_free_share` of free blocks."""
        self._free_share = write_behind_free_share
        self._planner = planner
        self._paused_kvs = paused_kvs
        self._views = views

    def swap(self, decisions: Sequence[Decision]) -> int:
        """Request the copies of decided swaps; return the rest of the budget, in blocks."""
        left = self._planner.budget
        for decision in decisions:
            kv = self._paused_kvs.get(decision.key)
            if decision.action == "swap" and left > 0 and kv is not None:
                left -= self._wish(kv, left)
        return left

    def behind(self, left: int, now: float) -> None:
        """Use the rest of the budget for copies that make a later eviction free."""
        step = self._views.step()
        if left <= 0 or not writes_behind(step, self._free_share):
            return
        views = self._views.paused(self._uncopied(), now)
        for view in copy_order(views, step):
            if left <= 0:
                return
            left -= self._wish(self._paused_kvs[view.key], left)

    def begins(self, kv: PausedKV, now: float) -> bool:
        """Return whether `behind` copies what KV lacks, as soon as the budget allows."""
        step = self._views.step()
        if not (writes_behind(step, self._free_share) and self._has_room(kv)):
            return False
        return bool(copy_order([self._views.of(kv, now)], step))

    def _has_room(self, kv: PausedKV) -> bool:
        """Return whether the host has room for all of KV that is copied as a whole."""
        return kv.whole is None or kv.uncopied <= self._planner.store.available

    def probe(self) -> None:
        """Request one copy that is just large enough to measure the link."""
        most = -(-COPY_TOKENS // self._views.step().block_size)
        self._planner.budget = max(self._planner.budget, most)
        for kv in self._uncopied():
            if self._wish(kv, most):
                return

    def _uncopied(self) -> list[PausedKV]:
        """Return the KV that may lose blocks of which some lack a copy."""
        found = []
        for kv in self._paused_kvs.to_copy():
            self._paused_kvs.freshen(kv)
            if kv.uncopied and can_lose(kv):
                found.append(kv)
        return found

    def _wish(self, kv: PausedKV, most: int) -> int:
        """Request copies of up to `most` blocks, and return their number.

        The last blocks go first, since they are released first. KV that is copied as a whole is
        not begun if the host has no room for all of it.
        """
        store = self._planner.store
        if not (can_lose(kv) and self._has_room(kv)):
            return 0
        blocks = self._paused_kvs.blocks.to_copy(kv)
        wanted: list[tuple[Block, Key]] = []
        for index in range(len(blocks) - 1, -1, -1):
            if len(wanted) >= most:
                break
            if not store.known(kv.keys[index]):
                wanted.append((blocks[index], kv.keys[index]))
        self._planner.wish(wanted)
        self._paused_kvs.outdate(kv)
        return len(wanted)


class LinkBandwidth:
    """Corrects the cost model's link rates with the copies that workers measured.

    A load over a link that is slower than recomputation spares the engine's time, at the price of
    the request's own. That pays while other requests need the engine. A request that is alone
    recomputes, although the host has its KV.

    Where swapping does not pay, no KV is loaded, and no KV is copied but for probes. Without them,
    a link that others have slowed for a while would never be used again.
    """

    def __init__(
        self, planner: SwapPlanner, costs: CostTracker, port: EngineState, min_link_share: float
    ) -> None:
        """Create it; swapping pays from `min_link_share` of the rate of recomputation.

        For a request that is alone, loads pay from `ALONE` times that share.
        """
        self._planner = planner
        self._costs = costs
        self._port = port
        self._min_share = min_link_share
        self._measured = 0
        self._paid = True
        self._probe_at = 0.0

    def learn(self) -> None:
        """Correct the rates, decide on loads, and log each change of whether swapping pays."""
        planner, costs = self._planner, self._costs
        while self._measured < planner.copies_measured:
            way = planner.copied[self._measured - planner.copies_measured]
            costs.observe_copy(way.direction, way.tokens, way.seconds)
            if not self._paid and way.direction == "out":
                # Probes go one way only. The link is shared, so they stand for both.
                costs.observe_copy("in", way.tokens, way.seconds)
            self._measured += 1
        pays = costs.model.link_pays(self._min_share)
        planner.pays = pays and (self.beats_computing or not self._alone())
        if self._measured and pays != self._paid:
            self._paid = pays
            if not pays:
                costs.doubt_link()
            logger.warning(
                "swapping %s: KV comes from the host at %.0f tokens/s and is recomputed at %.0f;"
                " a second of copying holds up the steps for %.2f s",
                "pays again" if pays else "is off, since it does not pay here",
                costs.model.in_rate,
                1 / costs.model.prefill_seconds_per_token,
                costs.model.copy_stall,
            )

    @property
    def beats_computing(self) -> bool:
        """Whether a request that is alone gets its KV over the link, and computes none again."""
        return self._planner.works and self._costs.model.link_pays(ALONE * self._min_share)

    def _alone(self) -> bool:
        """Return whether at most one request wants to run, and none runs."""
        return not self._port.running() and len(self._port.ready()) <= 1

    def probes(self, now: float) -> bool:
        """Return whether to measure the link by a copy now, since nothing else does."""
        if self._paid or not self._planner.works or now < self._probe_at:
            return False
        self._probe_at = now + PROBE_SECONDS
        return True


SESSION_END = "session end"
"""Why KV is released whose follow-up will not come, since its client has ended the session."""


EXPIRE_SECONDS = 0.25
"""Interval between checks for expired pauses and retained KV."""


class PausedKVManager:
    """Manages the paused KV of one scheduler, from each pause to its end."""

    def __init__(
        self,
        port: EngineState,
        settings: Settings,
        costs: CostTracker,
        sessions: Sessions,
        recorder: Recorder,
        paused_kvs: PausedKVs,
        planner: SwapPlanner | None,
    ) -> None:
        """Create it; other parts read `paused_kvs`, and `planner` is None without a host link."""
        self._port = port
        self._settings = settings
        self._sessions = sessions
        self._recorder = recorder
        self.planner = planner
        self.handling: Handling = make_handling(settings.handling)
        self.views = PolicyViews(port, paused_kvs, costs, planner, settings.min_link_share)
        self.paused_kvs = paused_kvs
        self._owner: dict[Key, PausedKV] = {}
        self._wholes = 0
        self._decisions: list[Decision] = []
        self._copying: Offload | None = None
        self._expire_at = 0.0
        if planner is not None:
            self._rates = LinkBandwidth(planner, costs, port, settings.min_link_share)
            self._copying = Offload(
                planner, paused_kvs, self.views, settings.write_behind_free_share
            )

    # -- from a pause to its end -----------------------------------------------------------------

    def paused(
        self, request: Request, pause: Pause, tool: str | None, session: SessionState
    ) -> None:
        """Manage the KV of a request that has just paused."""
        kv = self.open(request, pause, pause.frontier_tokens, pause.paused_at, tool, session)
        if not pause.held:
            kv.detached = []
        if self._settings.pause_deadline > 0:
            self.paused_kvs.expire(kv)
        self.note(kv, pause.paused_at)

    def open(
        self,
        request: Request,
        pause: Pause | None,
        tokens: int,
        now: float,
        tool: str | None,
        session: SessionState,
    ) -> PausedKV:
        """Return a new entry for a request's KV of `tokens` tokens."""
        whole = self._whole_of(request, tokens)
        kv = PausedKV(
            key=request.request_id,
            request=request,
            session=session,
            pause=pause,
            since=now,
            tool=tool,
            ends_next=self._sessions.ends_next(session),
            durations=self._sessions.durations(tool, session),
            keys=whole.keys if whole else keys_of(request, tokens // self._port.hash_tokens),
            context_tokens=tokens,
            whole=whole,
        )
        self.paused_kvs.add(kv)
        if self.planner is not None:
            self.planner.store.want(kv.keys)
            self._owner.update(dict.fromkeys(kv.keys, kv))
            if whole is not None:
                self.planner.loads.offers[kv.key] = whole
        return kv

    def _whole_of(self, request: Request, tokens: int) -> Whole | None:
        """Return what is copied of a request's KV as a whole; None for single blocks."""
        port = self._port
        if self.planner is None or port.layout.plain:
            return None
        self._wholes += 1
        places = port.places_of(request, tokens)
        return whole_of(request, tokens, places, port.hash_tokens, self._wholes)

    def offer(self, kv: PausedKV, follow_up: Request) -> None:
        """Let a follow-up that goes on where KV ends load it, if it is on the host."""
        self.paused_kvs.freshen(kv)
        if self.planner is not None and kv.whole is not None and kv.swapped:
            self.planner.loads.offers[follow_up.request_id] = kv.whole

    def note(self, kv: PausedKV, now: float) -> None:
        """Record the state at the begin of a pause."""
        self.paused_kvs.freshen(kv)
        view = self.views.of(kv, now)
        self._recorder.paused(kv, view, self.views.step(), self.handling.name)

    def expect(self, kv: PausedKV, seconds: float, now: float) -> None:
        """Take a forecast that the KV's pause lasts `seconds` more.

        It replaces the learned durations if forecasts have predicted this tool better. Only the
        first forecast of a pause is compared with its end. Raises `ValueError` for seconds that
        are not positive and finite.
        """
        elapsed, trust = max(0.0, now - kv.since), self._sessions.trust_for(kv.tool)
        learned = self._sessions.durations(kv.tool, kv.session)
        forecast = trust.forecast(seconds, elapsed, learned)
        kv.durations = trust.durations(forecast, learned)
        kv.forecast = kv.forecast or forecast

    def returned(self, kv: PausedKV, now: float) -> None:
        """Mark the KV's tool as returned, and learn the pause's duration."""
        if not kv.returned:
            self.paused_kvs.give_back(kv, now)
            self._sessions.pause_ended(kv.session, kv.tool, now - kv.since, kv.forecast)

    def admitted(self, pause: Pause, computed: int, now: float) -> ResumeReport:
        """Close the pause of a request that runs again with `computed` tokens; report on it."""
        loaded = 0 if self.planner is None else self.planner.loads.take_loaded(pause.request_id)
        cached = min(computed, pause.frontier_tokens)
        kv = self.paused_kvs[pause.request_id]
        copied = any(release.action == "swap" for release in kv.releases)
        report = pause.report(now, pause.frontier_tokens, cached, min(loaded, cached), copied)
        self.close(kv, now, report)
        return report

    def close(self, kv: PausedKV, now: float, report: ResumeReport | None = None) -> None:
        """Remove KV whose request runs again or has ended, or whose follow-up will not come."""
        self._recorder.closed(kv, report, now)
        self.paused_kvs.remove(kv)
        self._disown(kv)

    def _disown(self, kv: PausedKV) -> None:
        """Allow the host to reuse the copies of this KV."""
        if self.planner is not None:
            for key in kv.keys:
                if self._owner.get(key) is kv:
                    del self._owner[key]
            self.planner.store.unwant(kv.keys)
            if kv.whole is not None:
                self.planner.loads.withdraw(kv.whole, kv.key, kv.follow_up)
        kv.keys, kv.whole, kv.stale = [], None, True

    def forget_copies(self, request: Request) -> None:
        """Drop the copies of a request that has ended, if no other request can use them."""
        if self.planner is not None and not request.block_hashes and self.planner.store.used:
            full = request.num_tokens // self._port.hash_tokens
            self.planner.store.forget(keys_of(request, full))

    # -- the step --------------------------------------------------------------------------------

    @property
    def loading(self) -> bool:
        """Whether a load is in progress, so that a request will run soon."""
        return self.planner is not None and self.planner.loads.busy

    @property
    def copying(self) -> bool:
        """Whether a copy is under way, in either direction."""
        return self.planner is not None and self.planner.busy

    def soon_copied(self, now: float) -> bool:
        """Return whether paused KV that is only of use as a whole will soon have all its copies.

        Then no block is lost if others wait for it. Those that are being copied would not be free
        before the copy ends in any case.
        """
        copying = self._copying
        if copying is None or self._port.layout.plain or not self._rates.beats_computing:
            return False
        behind = copying if self.handling.write_behind else None
        return any(self._soon_copied(kv, behind, now) for kv in self.paused_kvs.holding.values())

    def _soon_copied(self, kv: PausedKV, behind: Offload | None, now: float) -> bool:
        if kv.whole is None or kv.returned or kv.loading:
            return False
        self.paused_kvs.freshen(kv)
        if not kv.present or kv.swapped:
            return False
        return not kv.uncopied or (behind is not None and behind.begins(kv, now))

    @property
    def active(self) -> bool:
        """Whether there is paused KV or a copy to prepare a step for."""
        return bool(self.paused_kvs) or (self.planner is not None and self.planner.active)

    def before_step(self, now: float) -> None:
        """Carry out the handling's decisions for this step, before blocks are allocated."""
        if self._decisions:
            self._decisions = []  # they name requests, which may have ended since
        if not self.active:
            return
        self.views.new_step()
        if self.planner is not None:
            blocks = self.views.link_blocks()
            self.planner.budget = self.planner.loads.in_step_blocks = blocks
            self._rates.learn()
            settled = self.planner.take_settled()
            for owner in dict.fromkeys(self._owner.get(key) for key in settled):
                if owner is not None:
                    owner.stale = True
                    self.paused_kvs.freshen(owner)
                    if owner.whole is not None and not (owner.present or owner.swapped):
                        self._disown(owner)  # a copy was lost, and the others are of no use
        if not self.paused_kvs:
            return
        self._expire(now)
        if self.handling.every_step:
            views = self.views.paused(self.paused_kvs.holding.values(), now)
            self._decisions = self.handling.decide(views, self.views.step())
            for decision in self._decisions:
                self._apply(decision, now)

    def _apply(self, decision: Decision, now: float) -> None:
        kv, action = self.paused_kvs[decision.key], decision.action
        if action == "swap" and not (kv.keys and self._host_has_room(kv)):
            action = "discard"
        if action == "discard":
            self.release(kv, kv.resident, now, "decided")
        elif action == "swap":
            self.release(kv, self.views.free_to_release(kv), now, "decided")

    def _host_has_room(self, kv: PausedKV) -> bool:
        planner = self.planner
        if planner is None or not planner.works:
            return False
        needed = 1 if kv.whole is None else kv.uncopied
        return planner.store.available >= needed or planner.busy

    def copies(self, now: float) -> None:
        """Request the step's copies, after the requests' blocks are allocated."""
        if self._copying is None or not self.paused_kvs:
            return
        left = self._copying.swap(self._decisions)
        if self.handling.write_behind:
            self._copying.behind(left, now)
        if self._rates.probes(now):
            self._copying.probe()

    def after_step(self) -> None:
        """Release front blocks that the request now holds itself while it loads the rest."""
        for kv in self.paused_kvs.returned.values():
            if kv.detached and kv.loading:
                self.paused_kvs.blocks.give_up(kv)
                self.paused_kvs.outdate(kv)

    def step_done(
        self, scheduler_output: SchedulerOutput, runner_output: ModelRunnerOutput
    ) -> None:
        """Settle the loads that joined a finished step, and handle those that failed."""
        if self.planner is not None and scheduler_output.total_num_scheduled_tokens:
            connector_output = runner_output.kv_connector_output
            invalid = connector_output.invalid_block_ids if connector_output else set()
            self.planner.loads.step_done(invalid)
            if invalid:
                self._recorder.kv_lost()

    # -- giving up -------------------------------------------------------------------------------

    def reclaim(
        self,
        needed: int,
        forced: bool,
        now: float,
        among: Iterable[PausedKV],
        why: str,
        whom: str = "",
    ) -> int:
        """Release `needed` blocks from the KV in `among`; return how many became free.

        `whom` is the request that needs them, where it is one.
        """
        views = self.views.paused(among, now)
        if not views:
            return 0
        freed = 0
        for key, blocks in self.handling.victims(views, self.views.step(), needed, forced):
            freed += self.release(self.paused_kvs[key], blocks, now, why, whom)
        return freed

    def reclaim_shared(
        self, needed: int, now: float, among: Iterable[PausedKV], why: str, whom: str = ""
    ) -> int:
        """Free blocks that only paused requests share; return how many became free.

        The handling does not choose them, since shared blocks have no price of their own.
        """
        pool = self._port.blocks
        before = pool.free()
        for kv in sorted(among, key=lambda one: one.since):
            if pool.free() - before >= needed:
                break
            if not kv.resident:
                self.drop(kv, now, why, whom)
        return pool.free() - before

    def release(self, kv: PausedKV, blocks: int, now: float, why: str, whom: str = "") -> int:
        """Release `blocks` blocks from the back of paused KV; return how many became free."""
        if blocks <= 0 or not can_lose(kv):
            return 0
        copied = kv.covered if self.views.findable else kv.covered == len(kv.keys) > 0
        priced = self._priced(kv, now)
        freed = self.paused_kvs.release(kv, blocks)
        how = "swap" if copied else "discard"
        kv.releases.append(Release(now, how, freed, why, priced, whom))
        self._released(kv, now)
        return freed

    def _released(self, kv: PausedKV, now: float) -> None:
        """Give up the copies of KV that cannot be loaded, and close KV that is of no more use."""
        if kv.whole is not None and self.planner is not None:
            if kv.swapped:
                if kv.follow_up is not None:
                    self.planner.loads.offers[kv.follow_up] = kv.whole
                return
            self._disown(kv)
        if kv.pause is None and not kv.detached:
            self.close(kv, now)

    def _priced(self, kv: PausedKV, now: float) -> Prices | None:
        """Return the waste of each alternative from now on, or None where records are off."""
        if not self._recorder.writes:
            return None
        self.paused_kvs.freshen(kv)
        return prices(self.views.of(kv, now), self.views.step())

    def drop(self, kv: PausedKV, now: float, why: str, whom: str = "") -> None:
        """Release all blocks of paused KV, including shared ones."""
        if kv.loading or not self.paused_kvs.blocks.of(kv):
            return
        priced = self._priced(kv, now)
        freed = self.paused_kvs.release(kv, 1 << 30)
        kv.releases.append(Release(now, "discard", freed, why, priced, whom))
        self._released(kv, now)

    def spoil(self, kv: PausedKV, now: float, why: str) -> None:
        """Drop KV that is not that of its request's tokens, and its copies."""
        self.drop(kv, now, why)
        if kv.key in self.paused_kvs:
            self._disown(kv)
            self.paused_kvs.freshen(kv)

    def end_session(self, origin: Origin, now: float) -> int:
        """Free what is kept for follow-ups of a session and of those that it started.

        Return of how many requests KV was freed. KV whose follow-up has come is left to that.
        """
        names, ended = self._sessions.end(origin), 0
        for kv in list(self.paused_kvs.retained.values()):
            if kv.follow_up is not None or not kv.session.is_of(origin.tenant, names):
                continue
            ended += 1
            self.drop(kv, now, SESSION_END)
            if kv.key in self.paused_kvs:  # it is on the host
                kv.releases.append(Release(now, "discard", 0, SESSION_END, None))
                self.close(kv, now)
        return ended

    def drop_all(self, now: float) -> None:
        """Release all blocks of all paused KV."""
        for kv in list(self.paused_kvs.holding.values()):
            self.drop(kv, now, "reset")

    def reset(self, now: float) -> None:
        """Release all blocks, including those being saved, for a reset of the prefix cache."""
        self.drop_all(now)
        if self.planner is not None:
            self.planner.call_off_saves()

    def _expire(self, now: float) -> None:
        """Drop expired pauses and retained KV; the check runs every `EXPIRE_SECONDS`."""
        if now < self._expire_at:
            return
        self._expire_at = now + EXPIRE_SECONDS
        for kv in list(self.paused_kvs.retained.values()):
            if now - kv.since > self._settings.retention and kv.follow_up is None:
                self.close(kv, now)
        for kv in self.paused_kvs.older_than(now - self._settings.pause_deadline):
            pause = kv.pause
            if pause is not None and pause.state is State.PAUSED and kv.keys:
                self.drop(kv, now, "deadline")
                self._disown(kv)
                self.paused_kvs.freshen(kv)
