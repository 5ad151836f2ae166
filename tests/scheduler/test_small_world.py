"""Every order of events in a small world, up to a depth: breadth first, each state looked at once.

Two sessions with a pause each and a plain request share 7 blocks and 3 on the host. From the step
before the first pause on, every sequence of events is played; two sequences that end in the same
state (`fingerprint`) are continued once. From every state faults stop, and all must end well. Time
stands still and costs are not learned, so that a state does not depend on how long it took.
"""

from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

from caesura.intercept.calls.formats import resolve
from caesura.scheduler.vllm.engine.kv.paused_kvs import PausedBlocks

from .invariants import check_all, check_rest, held_to_budget, said_as_planned
from .layouts import LAYOUTS, Recurrent, room
from .steering import HERMES
from .world import World, make_scheduler

CALL = "[calc(1) ->"
PACES = {"flows": 1000, "trickles": 0, "stalls": -1}


class SmallWorld:
    """A world in which events have names; what is possible now is `possible`."""

    def __init__(
        self,
        budget: int,
        depth: int,
        steps: int = 10,
        blocks: int = 7,
        runner: int | None = None,
        client: bool = False,
        **options: Any,
    ) -> None:
        """Create it; with a `client`, the second session is one whose client runs the tool."""
        scheduler = make_scheduler(
            blocks=blocks,
            host_blocks=3,
            window=20,
            formats=resolve(("hermes",), ()),
            max_model_len=96,
            asynchronous=depth > 0,
            clock=lambda: 0.0,
            **options,
        )
        if runner is not None:
            scheduler.use_v2_model_runner = runner == 2
        self.world = World(scheduler, depth)
        self.manager = scheduler.parts.manager
        scheduler.parts.costs.observe_step = lambda *_: None
        scheduler.parts.sessions.predictor.observe_pause = lambda *_: None
        self.manager.views.link_blocks = lambda: budget
        self.world.session("a", range(34), CALL, "r" * 20, "ok")
        if client:
            self.world.plain("b", range(100, 120), HERMES)
        else:
            self.world.session("b", range(100, 120), "z" + CALL, "s" * 30, "ok")
        self.link = "flows"
        for _ in range(steps):
            self.world.step()

    def possible(self) -> Iterator[str]:
        yield "step"
        sessions = self.world.sessions
        for name in ("a", "b"):
            if sessions[name].paused and not sessions[name].finished:
                yield f"answer {name}"
        if not sessions["a"].finished:
            yield "abort a"
        if "p" not in sessions:
            yield "arrive p"
        if self.follows:
            yield "follow b"
        for name in self._held():
            yield f"release {name}"
            yield f"discard {name}"
        for name in ("flows", "stalls", "fails") if self.manager.planner is not None else ():
            if name != self.link:
                yield name

    def _held(self) -> Iterator[str]:
        """Yield whose KV can be given up: the first session's, and what is kept for a follow-up."""
        for kv in self.manager.paused_kvs.values():
            if (kv.key == "a" or kv.pause is None) and kv.resident and not kv.loading:
                yield kv.key

    @property
    def follows(self) -> bool:
        """Whether a client has the call of its request, and no follow-up was sent."""
        b = self.world.sessions["b"]
        return not b.formats and b.finished and "c" not in self.world.sessions

    def play(self, event: str) -> None:
        verb, _, name = event.partition(" ")
        if verb == "step":
            self.world.step()
            held_to_budget(self.world)
        elif verb == "answer":
            self.world.answer(self.world.sessions[name])
        elif verb == "abort":
            self.world.abort(self.world.sessions[name])
        elif verb == "arrive":
            self.world.plain("p", range(200, 260))
        elif verb == "follow":
            b = self.world.sessions["b"]
            self.world.plain("c", [*b.prompt, *b.parts[0], *range(200, 208)])
        elif verb in ("release", "discard"):
            blocks = 1 if verb == "release" else 100
            self.manager.release(self.manager.paused_kvs[name], blocks, 0.0, "decided")
        else:
            self.link = verb
            self.world.link.fails = lambda: verb == "fails"
            self.world.link.pace = lambda: PACES.get(verb, 1000)
        check_all(self.world)

    def end(self) -> None:
        """Faults stop: everybody gets what was planned, and nothing is left."""
        if "p" not in self.world.sessions:
            self.play("arrive p")
        self.play("flows")
        self.world.run(200)
        if self.follows:
            self.play("follow b")
            self.world.run(200)
        said_as_planned(self.world)
        check_rest(self.world)


def fingerprint(small: SmallWorld) -> Any:
    """What the future depends on, whatever blocks and slots are numbered."""
    world, scheduler = small.world, small.world.scheduler
    return (
        small.link,
        _requests(scheduler),
        _paused_kvs(scheduler),
        None if small.manager.planner is None else _host(small.manager.planner),
        [sorted(layer._places.items()) for layer in world._layers if isinstance(layer, Recurrent)],
        [(type(o), getattr(o, "request_id", 0), len(o.blocks)) for o in world.link._queue],
        sorted(world.link._broken),
        [(o.num_scheduled_tokens, ran.sampled_token_ids) for o, ran in world._in_flight],
        [(s.position, s.paused, s.finished, len(s.delivered)) for s in world.sessions.values()],
    )


def _requests(scheduler: Any) -> Any:
    manager = scheduler.kv_cache_manager
    requests = [
        (
            request.request_id,
            request.status,
            request.num_computed_tokens,
            request.num_tokens,
            request.num_output_placeholders,
            request.num_stale_output_tokens,
            request.num_preemptions,
            request.last_sched_seq > scheduler.processed_step_seq,
            [_marks(group) for group in manager.get_blocks(request.request_id).blocks],
        )
        for request in scheduler.requests.values()
    ]
    queues = (scheduler.running, scheduler.waiting, scheduler.kv_holding_waiting)
    return (
        requests,
        [[request.request_id for request in queue] for queue in queues],
        sorted(request.request_id for request in scheduler.deferred_waiting),
        [block.block_hash for block in manager.block_pool.free_block_queue.get_all_free_blocks()],
        [(seq - scheduler.processed_step_seq, len(bs)) for seq, bs in scheduler.deferred_frees],
        sorted(scheduler.finished_recving_kv_req_ids),
        sorted(scheduler.failed_recving_kv_req_ids),
        sorted(scheduler.reset_preempted_req_ids),
        sorted(scheduler.finished_req_ids),
        _states(manager),
        sorted(scheduler.parts.port._given_back),
        sorted(scheduler.parts.stops.closing),
        {name: one.frontier for name, one in scheduler.parts.served.recomputing.items()},
    )


def _marks(blocks: Any) -> Any:
    return [(block.is_null, block.ref_cnt, block.block_hash) for block in blocks]


def _states(manager: Any) -> Any:
    """What vLLM notes of the places of recurrent states."""
    names = ("last_state_block_idx", "_num_retired_blocks", "_allocated_block_reqs")
    groups = manager.coordinator.single_type_managers
    return [[repr(getattr(group, name, None)) for name in names] for group in groups]


def _paused_kvs(scheduler: Any) -> Any:
    return [
        (
            kv.key,
            kv.pause and kv.pause.state,
            (kv.follow_up, kv.adopter is not None, kv.kept_as is not None),
            None if kv.detached is None else _marks(kv.detached),
            kv.keys,
            (kv.resident, kv.copied, kv.covered, kv.uncopied, kv.missing),
            (kv.stale, kv.returned),
        )
        for kv in scheduler.parts.manager.paused_kvs.values()
    ]


def _host(planner: Any) -> Any:
    store, loads = planner.store, planner.loads
    return (
        list(store._pending),
        list(store._slot_of),
        list(store._reusable),
        store._wanted,
        [(s.keys, s.failed, [b.ref_cnt for b in s.blocks]) for s in planner._saving.values()],
        (planner._failures, planner.works, planner._settled, planner.loads.distrusted),
        (loads._matched, loads._loaded, loads.in_step_blocks, len(loads._in_flight)),
        [(name, one.keys, one.sent, one.called_off) for name, one in loads._loading.items()],
    )


def explore(most_events: int, **options: Any) -> int:
    """Play every sequence of so many events; return how many states there are."""
    start = SmallWorld(**options)
    seen = {repr(fingerprint(start))}
    queue: deque[tuple[tuple[str, ...], tuple[str, ...]]] = deque([((), tuple(start.possible()))])
    while queue:
        path, events = queue.popleft()
        for event in events if len(path) < most_events else ():
            try:
                world = SmallWorld(**options)
                for earlier in (*path, event):
                    world.play(earlier)
                mark = repr(fingerprint(world))
                if mark in seen:
                    continue
                seen.add(mark)
                queue.append(((*path, event), tuple(world.possible())))
                world.end()
            except Exception as error:
                raise AssertionError(f"after {', '.join((*path, event))}") from error
    return len(seen)


PAUSED = 13
"""Steps after which both sessions are paused, and what is to be copied is on its way."""
CALLED = 60
"""Steps after which a client's request has ended with its call, or nearly so."""
FEW = (("state+full", True, 1, 1), ("state+window+full", False, 1, 2), ("window+full", True, 0, 1))
"""Those layouts, with or without prefix caching, and those engines that stand for the others."""
WORLDS = [
    pytest.param({"budget": 1, "depth": 0, "handling": "swap"}, id="over-steps"),
    pytest.param({"budget": 8, "depth": 0, "handling": "swap"}, id="in-step"),
    pytest.param({"budget": 2, "depth": 1, "handling": "swap"}, id="async"),
    pytest.param({"budget": 2, "depth": 0, "handling": "caesura"}, id="caesura"),
    pytest.param(
        {"budget": 2, "depth": 0, "handling": "swap", "prefix_caching": False}, id="no-cache"
    ),
]


@pytest.mark.parametrize("steps", [10, PAUSED])
@pytest.mark.parametrize("options", WORLDS)
def test_every_order_of_few_events(options: dict[str, Any], steps: int) -> None:
    assert explore(4, steps=steps, **options) > 50


LAID_OUT = [
    pytest.param(
        {"depth": depth, "runner": runner, "layout": layout, "prefix_caching": cached},
        id=f"{layout}-{'cached' if cached else 'uncached'}-{'async' if depth else 'sync'}-{runner}",
        marks=[] if (layout, cached, depth, runner) in FEW else [pytest.mark.slow],
    )
    for layout in LAYOUTS[1:]
    for cached in (True, False)
    for depth in (0, 1)
    for runner in (1, 2)
]
"""Every layout of a KV cache, synchronous and a step ahead, on vLLM's first and second runner."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("steps", "client"), [(PAUSED, False), pytest.param(CALLED, True, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("options", LAID_OUT)
def test_every_order_of_few_events_on_every_layout(
    options: dict[str, Any], steps: int, client: bool
) -> None:
    """The KV of a client's call is kept for a follow-up, or is given up before it comes."""
    blocks = room(options["layout"], 7, options["prefix_caching"], 0, options["depth"])
    given = {"budget": 2, "blocks": blocks, "handling": "preserve", **options}
    assert explore(3, steps=steps, client=client, **given) > 20


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("steps", [10, PAUSED])
@pytest.mark.parametrize("options", WORLDS)
def test_every_order_of_more_events(options: dict[str, Any], steps: int) -> None:
    assert explore(5, steps=steps, **options) > 100


def test_control_a_lost_block_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exploration can fail: paused KV that is never given back."""
    monkeypatch.setattr(PausedBlocks, "give_up", lambda self, kv: None)
    with pytest.raises(AssertionError, match="after"):
        explore(4, steps=PAUSED, budget=1, depth=0, handling="swap")
