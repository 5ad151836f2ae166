"""Requests under which engine after engine dies, on a stand-in for vLLM's client."""

from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.v1.engine.exceptions import EngineDeadError

from caesura.scheduler.errors import RepeatedDeaths
from caesura.scheduler.messages import Sampling, SessionSpec
from caesura.scheduler.vllm.client.rendering.media import NO_MEDIA
from caesura.scheduler.vllm.client.request import SentTurn, SurvivingRequest
from caesura.scheduler.vllm.engine.export.exporter import listeners_of
from tests.kit.host import StandInHost, output

DIES = "dies"


class Engines(StandInHost):
    """Engines that sample one token for each number, and die where a script says so."""

    context_tokens = 100

    def __init__(self, *requests: list[int | str]) -> None:
        super().__init__()
        self._requests = list(requests)

    async def generate(self, prompt: Any, *given: Any, **named: Any) -> AsyncGenerator[Any, None]:
        script = self._requests.pop(0)
        for place, token in enumerate(script):
            if token == DIES:
                raise EngineDeadError()
            yield output([int(token)], "stop" if place == len(script) - 1 else None)


def session(engines: Engines) -> SurvivingRequest:
    turns: Any = SimpleNamespace(pausing=False, watched=False, watch=lambda *given: None)
    return SurvivingRequest(engines, SessionSpec(), turns)


async def turn_of(request: SurvivingRequest) -> list[int]:
    """Run one turn and return what was sampled."""
    turn = SentTurn([1, 2, 3], 3, "fresh", Sampling(), "", NO_MEDIA)
    request.prepare(turn)
    await request.send(turn)
    finish = None
    while finish is None:
        piece = (await request.next(turn)).outputs[0]
        turn.tokens += piece.token_ids
        finish = piece.finish_reason
    return turn.sampled


async def test_a_turn_that_kills_each_engine_at_once_fails() -> None:
    engines = Engines(*[[DIES]] * 9)
    with pytest.raises(RepeatedDeaths, match="3 engines died under this session"):
        await turn_of(session(engines))
    assert engines.restarts == 2


async def test_a_turn_that_kills_each_engine_after_a_token_fails() -> None:
    engines = Engines(*[[7, DIES]] * 9)
    with pytest.raises(RepeatedDeaths, match="4 engines died under this session"):
        await turn_of(session(engines))
    assert engines.restarts == 3


async def test_a_session_each_of_whose_turns_kills_an_engine_fails() -> None:
    engines = Engines(*[[7, DIES], [8]] * 9)
    request = session(engines)
    for _ in range(3):
        assert await turn_of(request) == [7, 8]
    with pytest.raises(RepeatedDeaths):
        await turn_of(request)


async def test_turns_without_a_death_clear_a_session() -> None:
    engines = Engines(*[[7, DIES], [8], [7]] * 9)
    request = session(engines)
    for _ in range(9):
        assert await turn_of(request) == [7, 8]
        assert await turn_of(request) == [7]


async def test_a_session_that_gets_on_outlives_one_that_does_not() -> None:
    poison, other = Engines(*[[DIES]] * 9), Engines([7, DIES], [8, DIES], [9, DIES], [7])
    with pytest.raises(RepeatedDeaths):
        await turn_of(session(poison))
    assert await turn_of(session(other)) == [7, 8, 9, 7]


async def test_records_tell_which_request_goes_on_for_a_lost_one() -> None:
    told: list[dict[str, Any]] = []
    engines = Engines([7, DIES], [8], [9])
    stop = listeners_of(engines.vllm_config).listen(lambda _, records: told.extend(records))
    try:
        request = session(engines)
        assert await turn_of(request) == [7, 8]
        second = request.request_id
        assert await turn_of(request) == [9]
    finally:
        stop()
    (one,) = told
    assert (one["kind"], one["request"]) == ("continued", second)
    assert one["lost"] not in (second, request.request_id) and one["at"] >= one["sent"] > 0
