"""The loop of vLLM's engine core, step by step, in simulated time."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.outputs import ModelRunnerOutput

from caesura.simulator.engine.check import check_invariants, port_of, stuck
from caesura.simulator.engine.clients import Clients
from caesura.simulator.engine.clock import Clock
from caesura.simulator.engine.measure import Meter
from caesura.simulator.engine.runner import Runner
from caesura.simulator.engine.transfer import Copies, Span
from caesura.simulator.machine import Machine

IDLE_SECONDS = 0.001
"""The sleep of vLLM's engine core after a step without tokens while it has requests."""

SHORT_WAITS = 16
"""The number of empty steps in a row before time jumps to the next event."""

MAX_FRUITLESS_STEPS = 20_000
"""The number of steps in a row without a decoded token that counts as no progress."""

STEPS_PER_ROUND = 512
"""The number of steps between garbage collections, and between progress reports."""

STEPS_PER_CHECK = 16


class InOrder(dict[str, None]):
    """A set of names in the order of their entry, in place of an unordered set of vLLM.

    vLLM's connector iterates over the finished requests, so an unordered set would make runs
    differ.
    """

    def add(self, name: str) -> None:
        """Add a name."""
        self[name] = None


Progress = Callable[[float], None]
"""Called from time to time with the simulated second."""


class Core:
    """Runs a scheduler until no client has anything left to do, or until a window ends."""

    def __init__(
        self,
        scheduler: Scheduler,
        clients: Clients,
        copies: Copies | None,
        machine: Machine,
        clock: Clock,
        check: bool = False,
    ) -> None:
        """`copies` is None without a link; `check`: invariants are checked every few steps."""
        latency = machine.latency
        self.meter = Meter(scheduler, latency)
        self._scheduler = scheduler
        self._clients = clients
        self._copies = copies
        self._latency = latency
        self._clock = clock
        self._check = check
        self._port = port_of(scheduler)
        self._runner = Runner(self._port, clients.live, machine.window)
        self._steps = 0
        self._empty = 0
        self._fruitless = 0
        self._asleep = False
        self._wakes_at: float | None = None

    @property
    def now(self) -> float:
        """Return the second up to which this engine has run."""
        return self._clock.now

    @property
    def next_at(self) -> float | None:
        """Return when the engine steps next; None if it has nothing to do, or waits for others."""
        sent = self._clients.next_at
        if self._asleep:
            times = [at for at in (self._wakes_at, sent) if at is not None]
            return max(self._clock.now, min(times)) if times else None
        if self._scheduler.has_requests():
            return self._clock.now
        return None if sent is None else max(self._clock.now, sent)

    @property
    def has_requests(self) -> bool:
        """Return whether the engine has requests, those that are paused included."""
        return bool(self._scheduler.has_requests())

    def step_at(self, at: float, progress: Progress | None = None) -> None:
        """Pass the time up to `at`, take what the clients have sent by then, and run one step.

        For engines that run side by side: a step without tokens passes no time, and leaves it to
        `next_at` to say when the next one is due.
        """
        self.pass_until(at)
        self._asleep = False
        self._clients.hand_over(self._clock.now)
        if self._scheduler.has_requests():
            self._step()
            if not self._steps % STEPS_PER_ROUND:
                self._round(progress)
        self.meter.sample(self._clock.now)

    def end(self) -> None:
        """Add the last row to the timeline; raise `RuntimeError` if requests are left."""
        if self._scheduler.has_requests():
            raise stuck(self._scheduler, self._clock.now)
        self.meter.sample(self._clock.now, last=True)

    def run(self, window: float | None = None, progress: Progress | None = None) -> None:
        """Run to the end, or until the first step that ends after the window.

        Raises `RuntimeError` if the scheduler stops making progress.
        """
        clients, scheduler, clock = self._clients, self._scheduler, self._clock
        while window is None or clock.now < window:
            clients.hand_over(clock.now)
            if scheduler.has_requests():
                self._step()
                self._sleep()
                if not self._steps % STEPS_PER_ROUND:
                    self._round(progress)
                self.meter.sample(clock.now)
            elif clients.next_at is None:
                break
            else:
                at = clients.next_at
                self.pass_until(at if window is None else min(at, window))
        self.meter.sample(clock.now, last=True)

    def _step(self) -> None:
        scheduler, copies = self._scheduler, self._copies
        self._steps += 1
        self._fruitless += 1
        if self._fruitless > MAX_FRUITLESS_STEPS:
            raise stuck(scheduler, self._clock.now)
        output = scheduler.schedule()
        self._port.finish_names_into(InOrder())
        if copies is not None:
            copies.begin(output.kv_connector_metadata, self._clock.now)
        if output.total_num_scheduled_tokens:
            self._empty = 0
            self._compute(output)
        else:
            self._empty += 1
            self._idle(output)
        if self._check and not self._steps % STEPS_PER_CHECK:
            check_invariants(scheduler)

    def _compute(self, output: Any) -> None:
        """Run a step that has tokens."""
        began, copies, meter = self._clock.now, self._copies, self.meter
        work = self._runner.execute(output)
        plain = self._latency.seconds(work.shape)
        span = Span(began + plain, 0.0) if copies is None else copies.step(began, plain)
        meter.look()
        meter.step(work, span, began, plain)
        self._advance(span.ends)
        for live in work.first:
            live.first = span.ends
        if work.decode_tokens or work.first or work.ended:
            self._fruitless = 0
        ids = list(output.num_scheduled_tokens)
        index = dict(zip(ids, range(len(ids)), strict=True))
        outputs = self._update(output, ModelRunnerOutput(ids, index, work.sampled))
        if work.ended:
            self._clients.receive(work.ended, outputs, span.ends)

    def _sleep(self) -> None:
        """After a step without tokens, advance time to the next event if requests remain."""
        if self._asleep:
            self._asleep = False
            if self._wakes_at is None:
                raise stuck(self._scheduler, self._clock.now)
            self.pass_until(self._wakes_at)

    def _idle(self, output: Any) -> None:
        """Run a step without tokens, and note when the next event comes if requests remain."""
        clock, copies, clients = self._clock, self._copies, self._clients
        if copies is not None:
            self.pass_until(copies.held_until(clock.now))
        self._update(output, ModelRunnerOutput([], {}))
        if not self._scheduler.has_requests():
            return
        soon = clients.next_at
        copied_at = copies.link.next_end if copies is not None else None
        if copied_at is not None:
            soon = copied_at if soon is None else min(copied_at, soon)
        elif self._empty <= SHORT_WAITS:
            waited = clock.now + IDLE_SECONDS
            soon = waited if soon is None else min(waited, soon)
        self._asleep, self._wakes_at = True, soon

    def _update(self, output: Any, result: ModelRunnerOutput) -> dict[int, Any]:
        """Give a step's result to the scheduler, with the copies done by now."""
        if self._copies is not None:
            self.meter.copied(self._copies.take_ordered())
            result.kv_connector_output = self._copies.report(self._clock.now)
        outputs: dict[int, Any] = self._scheduler.update_from_output(output, result)
        return outputs

    def pass_until(self, at: float) -> None:
        """Advance time to the second `at` without a step."""
        if at > self._clock.now:
            self.meter.look()
            self._advance(at)

    def _advance(self, at: float) -> None:
        self.meter.pass_time(at - self._clock.now)
        self._clock.now = at

    def _round(self, progress: Progress | None) -> None:
        gc.collect(1)
        if progress is not None:
            progress(self._clock.now)


@contextmanager
def collecting_rarely() -> Iterator[None]:
    """Turn Python's garbage collector off within: a run creates almost no cycles."""
    enabled = gc.isenabled()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if enabled:
            gc.enable()
