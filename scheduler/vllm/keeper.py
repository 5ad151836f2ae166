"""Keeps the KV cache of paused requests, or gives it up, as the chosen handling says.

The handling is pure and knows numbers; this does what it decides. Before a step it is shown every
paused KV cache and the state of the engine (`sight`): blocks are released, copies are asked for
(`copying`). When a step needs blocks, it names those that go first. Everything is written down
(`ledger`).
"""

from collections.abc import Iterable

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request

from caesura.intercept.calls.events import ResumeReport
from caesura.intercept.kv.costs import CostTracker
from caesura.intercept.kv.handling import make_handling
from caesura.intercept.kv.states import Pause, State
from caesura.intercept.kv.views import Decision, Handling
from caesura.scheduler.settings import Settings
from caesura.scheduler.vllm.copying import Copying
from caesura.scheduler.vllm.engine_state import EngineState
from caesura.scheduler.vllm.holding import Holding, Holdings, can_lose
from caesura.scheduler.vllm.life import Life
from caesura.scheduler.vllm.lives import Lives
from caesura.scheduler.vllm.rates import LinkRates
from caesura.scheduler.vllm.recorder import Recorder
from caesura.scheduler.vllm.sight import Sight
from caesura.scheduler.vllm.swap.host import Key, keys_of
from caesura.scheduler.vllm.swap.planner import SwapPlanner

EXPIRE_SECONDS = 0.25
"""How late a pause that has lasted too long may be noticed."""


class Keeper:
    """The paused KV caches of one scheduler and what becomes of them."""

    def __init__(
        self,
        port: EngineState,
        settings: Settings,
        costs: CostTracker,
        lives: Lives,
        recorder: Recorder,
        holdings: dict[str, Holding],
        planner: SwapPlanner | None,
    ) -> None:
        """Manage the `holdings`, which others may read; `planner`: there is a link to the host."""
        self._port = port
        self._settings = settings
        self._lives = lives
        self._recorder = recorder
        self.planner = planner
        self.handling: Handling = make_handling(settings.handling)
        self.mechanics = Holdings(port)
        self.sight = Sight(port, self.mechanics, costs, planner)
        self.holdings = holdings
        self._owner: dict[Key, Holding] = {}
        self._decisions: list[Decision] = []
        self._copying: Copying | None = None
        self._expire_at = 0.0
        if planner is not None:
            self._rates = LinkRates(planner, costs)
            self._copying = Copying(planner, self.mechanics, self.sight)

    # -- the life of a holding -------------------------------------------------------------------

    def paused(self, request: Request, pause: Pause, tool: str | None, life: Life) -> None:
        """Take charge of the KV cache of a request that has just paused."""
        holding = self.open(request, pause, pause.frontier_tokens, pause.paused_at, tool, life)
        if not pause.held:
            holding.detached = []
        self.note(holding, pause.paused_at)

    def open(
        self,
        request: Request,
        pause: Pause | None,
        tokens: int,
        now: float,
        tool: str | None,
        life: Life,
    ) -> Holding:
        """Make the record of somebody's KV cache of so many tokens."""
        holding = Holding(
            key=request.request_id,
            request=request,
            life=life,
            pause=pause,
            since=now,
            tool=tool,
            durations=self._lives.durations(request.request_id, tool, life),
            keys=keys_of(request, tokens // self._port.block_size),
            context_tokens=tokens,
            counted_at=now,
        )
        self.holdings[holding.key] = holding
        if self.planner is not None:
            self.planner.store.want(holding.keys)
            self._owner.update(dict.fromkeys(holding.keys, holding))
        return holding

    def note(self, holding: Holding, now: float) -> None:
        """Record what is known at the beginning of a pause."""
        self.sight.freshen(holding)
        view = self.sight.of(holding, now)
        self._recorder.paused(holding, view, self.sight.step(), self.handling.name)
        self.record_counts()

    def returned(self, holding: Holding, now: float) -> None:
        """Its tool is back: learn how long that took."""
        if not holding.returned:
            holding.returned, holding.returned_at = True, now
            self._lives.pause_ended(holding.tool, now - holding.since)

    def admitted(self, pause: Pause, computed: int, now: float) -> ResumeReport:
        """A paused request runs again, with so many tokens computed."""
        loaded = 0 if self.planner is None else self.planner.loads.take_loaded(pause.request_id)
        cached = min(computed, pause.frontier_tokens)
        holding = self.holdings[pause.request_id]
        copied = any(action == "swap" for _, action, *_ in holding.events)
        report = pause.report(now, pause.frontier_tokens, cached, min(loaded, cached), copied)
        self.close(holding, now, report)
        return report

    def close(self, holding: Holding, now: float, report: ResumeReport | None = None) -> None:
        """It runs again, or has ended, or nobody will come."""
        holding.count(now)
        self.record_counts()
        self._recorder.closed(holding, report, now)
        del self.holdings[holding.key]
        self.mechanics.forget(holding)
        self._disown(holding)

    def _disown(self, holding: Holding) -> None:
        """Let its host copies be reused."""
        if self.planner is not None:
            for key in holding.keys:
                if self._owner.get(key) is holding:
                    del self._owner[key]
            self.planner.store.unwant(holding.keys)
        holding.keys, holding.stale = [], True

    def forget_copies(self, request: Request) -> None:
        """Drop copies that nobody can find again once the request has ended."""
        if self.planner is not None and not request.block_hashes and self.planner.store.used:
            full = request.num_tokens // self._port.block_size
            self.planner.store.forget(keys_of(request, full))

    # -- the step --------------------------------------------------------------------------------

    @property
    def loading(self) -> bool:
        """Whether somebody's KV is on its way from the host: blocks that will be used soon."""
        return self.planner is not None and self.planner.loads.busy

    @property
    def active(self) -> bool:
        """Whether a step has to be prepared at all."""
        return bool(self.holdings) or (self.planner is not None and self.planner.active)

    def before_step(self, now: float) -> None:
        """Do what the handling decides for this step, before anybody asks for blocks."""
        if not self.active:
            return
        self._decisions = []
        self.sight.new_step()
        if self.planner is not None:
            blocks = self.sight.link_blocks()
            self.planner.budget = self.planner.loads.in_step_blocks = blocks
            self._rates.learn()
            settled = self.planner.take_settled()
            for owner in dict.fromkeys(self._owner.get(key) for key in settled):
                if owner is not None:
                    owner.stale = True
                    self.sight.freshen(owner)
            self.record_counts()
        if not self.holdings:
            return
        self._expire(now)
        if self.handling.every_step:
            views = self.sight.paused(self.holdings.values(), now)
            self._decisions = self.handling.decide(views, self.sight.step())
            for decision in self._decisions:
                self._apply(decision, now)

    def _apply(self, decision: Decision, now: float) -> None:
        holding, action = self.holdings[decision.key], decision.action
        if action == "swap" and not (holding.keys and self._host_has_room()):
            action = "discard"
        if action == "discard":
            self.release(holding, holding.resident, now, "decided")
        elif action == "swap":
            self.release(holding, self.sight.free_to_release(holding), now, "decided")

    def _host_has_room(self) -> bool:
        planner = self.planner
        if planner is None or not planner.works:
            return False
        return planner.store.available > 0 or planner.busy

    def copies(self, now: float) -> None:
        """Ask for the step's copies, after everybody has the blocks that they need."""
        if self._copying is None or not self.holdings:
            return
        left = self._copying.swap(self._decisions, self.holdings)
        if self.handling.write_behind:
            self._copying.behind(self.holdings, left, now)

    def after_step(self) -> None:
        """Let go of front blocks that their request has taken over, to load what follows them."""
        for holding in self.holdings.values():
            if holding.returned and holding.detached and holding.loading:
                self.mechanics.forget(holding)

    def step_done(
        self, scheduler_output: SchedulerOutput, runner_output: ModelRunnerOutput
    ) -> None:
        """A step is over, and with it the loads that joined it."""
        if self.planner is not None and scheduler_output.total_num_scheduled_tokens:
            connector_output = runner_output.kv_connector_output
            invalid = connector_output.invalid_block_ids if connector_output else set()
            self.planner.loads.step_done(invalid)
            if invalid:
                self._recorder.kv_lost()

    def record_counts(self) -> None:
        """Record what has changed of the holdings since the last call."""
        for holding in self.sight.take_recounted():
            self._recorder.kv_changed(holding)

    # -- giving up -------------------------------------------------------------------------------

    def reclaim(
        self, needed: int, forced: bool, now: float, among: Iterable[Holding], why: str
    ) -> int:
        """Free blocks that somebody needs, of these holdings; return how many that were."""
        views = self.sight.paused(among, now)
        if not views:
            return 0
        freed = 0
        for key, blocks in self.handling.victims(views, self.sight.step(), needed, forced):
            freed += self.release(self.holdings[key], blocks, now, why)
        return freed

    def reclaim_shared(self, needed: int, now: float, among: Iterable[Holding], why: str) -> int:
        """Free blocks that only paused requests hold, but several of them, so that none owns them.

        No handling is asked: blocks that belong to nobody alone have no price of their own.
        """
        pool = self._port.blocks
        before = pool.free()
        for holding in sorted(among, key=lambda one: one.since):
            if pool.free() - before >= needed:
                break
            if not holding.resident:
                self.drop(holding, now, why)
        return pool.free() - before

    def release(self, holding: Holding, blocks: int, now: float, why: str) -> int:
        """Give up blocks from the back of a holding; return how many got free."""
        if blocks <= 0 or not can_lose(holding):
            return 0
        holding.count(now)
        how = "swap" if holding.covered else "discard"
        freed = self.mechanics.release(holding, blocks)
        self.sight.freshen(holding)
        self.record_counts()
        holding.events.append((now, how, freed, why))
        if holding.pause is None and not holding.detached:
            self.close(holding, now)
        return freed

    def drop(self, holding: Holding, now: float, why: str) -> None:
        """Give up all of it, shared blocks too."""
        if holding.loading or not self.mechanics.blocks(holding):
            return
        holding.count(now)
        freed = self.mechanics.release(holding, 1 << 30)
        self.sight.freshen(holding)
        self.record_counts()
        holding.events.append((now, "discard", freed, why))
        if holding.pause is None:
            self.close(holding, now)

    def drop_all(self, now: float) -> None:
        """Give up all blocks of all holdings."""
        for holding in list(self.holdings.values()):
            self.drop(holding, now, "reset")

    def reset(self, now: float) -> None:
        """Give up all blocks, those too that are being copied: the prefix cache is reset."""
        self.drop_all(now)
        if self.planner is not None:
            self.planner.call_off_saves()

    def recount(self) -> None:
        """Count all holdings anew: copies on the host were forgotten."""
        self.sight.recount(self.holdings.values())
        self.record_counts()

    def _expire(self, now: float) -> None:
        """Give up what nobody has come back for in time; now and then is often enough."""
        if now < self._expire_at:
            return
        self._expire_at = now + EXPIRE_SECONDS
        for holding in list(self.holdings.values()):
            waited = now - holding.since
            if holding.pause is None:
                if waited > self._settings.retention and holding.follow_up is None:
                    self.close(holding, now)
            elif (
                0 < self._settings.pause_deadline < waited
                and holding.pause.state is State.PAUSED
                and holding.keys
            ):
                self.drop(holding, now, "deadline")
                self._disown(holding)
                self.sight.freshen(holding)
                self.record_counts()
