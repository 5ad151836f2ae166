"""Grammars of a session's turns: each turn has that of its own chunk.

The fake grammar allows one text only, so that a token which the wrong grammar saw, or which none
saw, shows at once.
"""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import pytest
import torch
from vllm.sampling_params import StructuredOutputsParams
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output.request import StructuredOutputRequest

from caesura.scheduler.vllm.wire import WHOLE_TURN_KEY

from .test_wedges import VllmSessions, leaves_nothing
from .world import Session, World, make_scheduler

CALL = "sum [calc(1+2) ->"
TURNS = (CALL, "1]", CALL, "2]", " done")
WORDS = 9
"""32-bit words of a mask over the 257 tokens of the tests' vocabulary."""
MODES = pytest.mark.parametrize(
    ("asynchronous", "depth"),
    [
        pytest.param(False, 0, id="sync"),
        pytest.param(True, 0, id="async-0"),
        # With grammars, vLLM's engine core never has more steps in flight.
        pytest.param(True, 1, id="async-1"),
    ],
)


class Spelled:
    """A grammar that allows exactly these tokens, one after the other."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self._tokens = tokens
        self._at = 0

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        begin, self._at = self._at, self._at + len(tokens)
        return list(self._tokens[begin : self._at]) == tokens

    def fill_bitmask(self, bitmask: torch.Tensor, index: int) -> None:
        token = self._tokens[self._at]
        bitmask[index] = 0
        bitmask[index, token // 32] = _bit(token)

    def is_terminated(self) -> bool:
        return self._at >= len(self._tokens)


class Backend:
    """The part of a grammar library that allocates masks."""

    def allocate_token_bitmask(self, rows: int) -> torch.Tensor:
        return torch.full((rows, WORDS), -1, dtype=torch.int32)


def _bit(token: int) -> int:
    return int(torch.tensor(1 << token % 32, dtype=torch.int64).to(torch.int32))


class _Grammars:
    """A world whose runner samples by the masks; `constrained` says which turns have a grammar."""

    scheduler: Any
    sessions: dict[str, Session]

    def prepare(self, constrained: Sequence[bool]) -> None:
        self.constrained = tuple(constrained)
        self.scheduler.structured_output_manager.backend = Backend()
        self.compiling: dict[int, Future[Any]] = {}
        """The compilation that a turn waits for, by the turn's number."""
        self.masked = 0

    def _request(self, *args: Any, **options: Any) -> Request:
        request: Request = super()._request(*args, **options)  # type: ignore[misc]
        session = self.sessions[request.request_id]
        turn = session.position // 2
        if request.resumable and self.constrained[turn]:
            grammar = self.compiling.get(turn) or Spelled(session.parts[session.position])
            request.structured_output_request = StructuredOutputRequest(
                params=StructuredOutputsParams(regex="x"),
                _grammar=grammar,  # type: ignore[arg-type]
            )
            request.status = RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
        return request

    def _run(self, output: Any) -> ModelRunnerOutput:
        result: ModelRunnerOutput = super()._run(output)  # type: ignore[misc]
        if getattr(output, "pending_structured_output_tokens", False):
            # vLLM samples only when it knows the tokens before, on which the masks depend.
            while self._in_flight:  # type: ignore[attr-defined]
                self._deliver()  # type: ignore[attr-defined]
        made = self.scheduler.get_grammar_bitmask(output)
        masks = {}
        if made is not None:
            masks = dict(zip(made.structured_output_request_ids, made.grammar_bitmask, strict=True))
        self.masked += len(masks)
        for request_id, sampled in zip(result.req_ids, result.sampled_token_ids, strict=True):
            turn = self._turn(self.sessions[request_id], request_id)
            if sampled and turn is not None:
                self._check(turn, sampled[0], masks.get(request_id))
        return result

    def _turn(self, session: Session, request_id: str) -> int | None:
        """Return the turn of the token sampled last, or None if it follows the end of a turn."""
        at = len(self._view[request_id]["tokens"]) - len(session.prompt)  # type: ignore[attr-defined]
        for number, part in enumerate(session.parts):
            if at <= len(part):
                return number // 2 if number % 2 == 0 else None
            at -= len(part)
        return None

    def _check(self, turn: int, token: int, mask: Any) -> None:
        assert (mask is not None) == self.constrained[turn], f"not the grammar of turn {turn}"
        if mask is not None:
            assert int(mask[token // 32]) & _bit(token), f"the mask does not allow {token}"


class GrammarWorld(_Grammars, World):
    """Sessions that Caesura watches."""


class GrammarSessions(_Grammars, VllmSessions):
    """Sessions of vLLM's own clients, which may push a chunk while a turn still runs."""


def make(
    asynchronous: bool,
    depth: int,
    constrained: Sequence[bool],
    kind: type = GrammarWorld,
    **given: Any,
) -> Any:
    world = kind(make_scheduler(asynchronous=asynchronous, **given), depth)
    world.prepare(constrained)
    return world


def said_as_planned(world: World) -> None:
    for session in world.sessions.values():
        assert session.delivered == [token for part in session.parts[::2] for token in part]


def until(world: World, there: Any) -> None:
    for _ in range(200):
        if there():
            return
        world.step()
    raise AssertionError("never came about")


PATTERNS = pytest.mark.parametrize(
    "constrained",
    [
        pytest.param((True, False, True), id="101"),
        pytest.param((False, True, False), id="010"),
        pytest.param((True, True, True), id="111"),
        pytest.param((False, False, True), id="001"),
    ],
)


@PATTERNS
@MODES
def test_each_turn_has_its_own_grammar(
    asynchronous: bool, depth: int, constrained: tuple[bool, ...]
) -> None:
    world = make(asynchronous, depth, constrained)
    for index in range(3):
        world.session(f"s{index}", range(index, index + 40), *TURNS)
    world.run()
    said_as_planned(world)
    leaves_nothing(world)
    assert world.masked >= 3 * sum(constrained)


@pytest.mark.parametrize("constrained", [(True, False, False), (False, True, False)])
def test_vllms_own_scheduler_drops_them(constrained: tuple[bool, ...]) -> None:
    """The control: these worlds notice what stock vLLM does."""
    world = make(False, 0, constrained, GrammarSessions, scheduler_class=Scheduler)
    world.session("a", range(40), *TURNS)
    with pytest.raises(AssertionError, match="not the grammar of turn"):
        world.run()


@MODES
def test_a_dropped_kv_cache_changes_nothing(asynchronous: bool, depth: int) -> None:
    world = make(asynchronous, depth, (True, True, True))
    session = world.session("a", range(100), *TURNS)
    until(world, lambda: session.paused)
    world.drain()
    world.drop_kv("a")
    world.answer(session)
    world.run()
    said_as_planned(world)
    leaves_nothing(world)


@PATTERNS
@MODES
def test_preemptions_change_nothing(
    asynchronous: bool, depth: int, constrained: tuple[bool, ...]
) -> None:
    world = make(asynchronous, depth, constrained, blocks=16, max_model_len=240, block_size=8)
    preempted = 0
    for index in range(6):
        world.session(f"s{index}", range(index * 100, index * 100 + 20), *TURNS)
    for _ in range(800):
        if all(session.finished for session in world.sessions.values()):
            break
        world.step()
        preempted += len(world.last.preempted_req_ids or ())
        for session in world.sessions.values():
            if session.paused and not session.finished:
                world.answer(session)
    assert preempted
    said_as_planned(world)
    leaves_nothing(world)


@MODES
def test_a_turn_waits_for_its_grammar_and_nobody_else_does(asynchronous: bool, depth: int) -> None:
    world = make(asynchronous, depth, (False, True, False))
    world.compiling[1] = Future()
    session = world.session("a", range(40), *TURNS)
    until(world, lambda: session.paused)
    world.answer(session)
    other = world.plain("b", range(200, 240))
    until(world, lambda: other.finished)
    turn = session.parts[2]
    assert session.delivered == session.parts[0]
    world.compiling[1].set_result(Spelled(turn))
    world.run()
    said_as_planned(world)
    leaves_nothing(world)


@MODES
def test_a_grammar_that_fails_ends_its_request_only(asynchronous: bool, depth: int) -> None:
    world = make(asynchronous, depth, (False, True, False))
    world.compiling[1] = Future()
    session = world.session("a", range(40), *TURNS)
    until(world, lambda: session.paused)
    world.answer(session)
    other = world.plain("b", range(200, 240))
    world.compiling[1].set_exception(ValueError("no such grammar"))
    until(world, lambda: session.finished and other.finished)
    leaves_nothing(world)


@MODES
def test_an_abort_while_the_grammar_compiles(asynchronous: bool, depth: int) -> None:
    world = make(asynchronous, depth, (True, True, True))
    world.compiling[1] = Future()
    session = world.session("a", range(40), *TURNS)
    until(world, lambda: session.paused)
    world.answer(session)
    world.step()
    world.abort(session)
    leaves_nothing(world)


@MODES
def test_tokens_that_the_grammar_refuses_end_the_request(asynchronous: bool, depth: int) -> None:
    """vLLM then no longer counts it as a session, and its client still closes its input."""
    world = make(asynchronous, depth, (True, False, False))
    wrong: Future[Any] = Future()
    wrong.set_result(Spelled([*CALL[:4].encode(), ord("?")]))
    world.compiling[0] = wrong
    session = world.session("a", range(40), *TURNS)
    world._check = lambda *_: None  # this model ignores its mask
    until(world, lambda: session.finished)
    leaves_nothing(world)


@pytest.mark.parametrize("compiled", [True, False])
@MODES
def test_a_chunk_that_comes_before_its_turn(asynchronous: bool, depth: int, compiled: bool) -> None:
    """A step of the turn before may be in flight when the chunk's grammar takes over."""
    world = make(asynchronous, depth, (True, True, False), GrammarSessions)
    if not compiled:
        world.compiling[1] = Future()
    session = world.session("a", range(40), *TURNS)
    for _ in range(3):
        world.step()
    world.push_early(session)
    for _ in range(60):
        world.step()
    if not compiled:
        assert session.delivered == session.parts[0]
        world.compiling[1].set_result(Spelled(session.parts[2]))
    world.run()
    said_as_planned(world)
    leaves_nothing(world)


def test_a_grammar_of_the_whole_turn_does_not_wait_for_the_end_of_thinking() -> None:
    world = make(False, 0, (True, True, False))
    made = world._request

    def request(*args: Any, **options: Any) -> Request:
        one: Request = made(*args, **options)
        if one.resumable and one.sampling_params is not None:
            one.sampling_params.extra_args = {
                **(one.sampling_params.extra_args or {}),
                WHOLE_TURN_KEY: len(world.sessions["a"].delivered) > 0,
            }
        return one

    world._request = request
    session = world.session("a", range(40), *TURNS)
    alive = world.scheduler.requests["a"]
    assert alive.structured_output_request.reasoning_ended is None
    until(world, lambda: session.paused)
    world.answer(session)
    assert alive.structured_output_request.reasoning_ended is True
