"""Worlds whose turns have grammars that allow one text only."""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import pytest
import torch
from vllm.sampling_params import StructuredOutputsParams
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output.request import StructuredOutputRequest

from tests.scheduler.world import Session, World, make_scheduler

CALL = "sum [calc(1+2) ->"
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
