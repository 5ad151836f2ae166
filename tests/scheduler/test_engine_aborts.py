"""Requests that the engine drops unasked, on a stand-in for vLLM's client."""

import asyncio
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import pytest

from caesura.scheduler.errors import RequestAborted, RequestFailed
from caesura.scheduler.messages import Sampling, SessionSpec
from caesura.scheduler.vllm.client.rendering.media import NO_MEDIA
from caesura.scheduler.vllm.client.request import SentTurn, SurvivingRequest
from caesura.scheduler.vllm.client.turn_log import piece_of
from tests.kit.host import StandInHost, output

ABORT = "abort"
PAUSE = "stop"


class Engine(StandInHost):
    """An engine whose requests give what a script says: tokens, and at last how they ended.

    Each turn of a request has a list of its own. What comes behind an abort is never asked for.
    """

    context_tokens = 100

    def __init__(self, *requests: list[list[int | str]], paused: bool = True) -> None:
        super().__init__()
        self._requests = list(requests)
        self._paused = paused
        self.prompts: list[list[int]] = []
        """The tokens with which the requests began."""
        self.ends_itself = False
        self.output_handler = asyncio.get_running_loop().create_future()

    @property
    def errored(self) -> bool:
        return bool(self.output_handler.done())

    async def revived(self, error: Exception) -> None:
        await super().revived(error)
        self.ends_itself = False
        self.output_handler = asyncio.get_running_loop().create_future()

    async def is_paused(self) -> bool:
        """Answer as vLLM does; an engine that ends itself refuses, and is gone soon."""
        if self.ends_itself:
            asyncio.get_running_loop().call_later(0.01, self.output_handler.set_result, None)
            raise RuntimeError("Server shutting down")
        return self._paused

    async def generate(self, chunks: Any, *given: Any, **named: Any) -> AsyncGenerator[Any, None]:
        turns = self._requests.pop(0)
        chunk = await anext(chunks)
        self.prompts.append(list(chunk.prompt["prompt_token_ids"]))
        for number, (*tokens, end) in enumerate(turns):
            if number and end != ABORT:
                await anext(chunks)
            for token in tokens:
                yield output([int(token)])
            yield output([], str(end))


def session(engine: Engine) -> SurvivingRequest:
    turns: Any = SimpleNamespace(pausing=True, watched=False, watch=lambda *given: None)
    return SurvivingRequest(engine, SessionSpec(), turns)


class Talk:
    """The turns of one session, which appends a result's token 50 after each."""

    def __init__(self, engine: Engine) -> None:
        self.request = session(engine)
        self.tokens = [1, 2, 3]

    async def turn(self) -> list[int]:
        appended = None if not self.request.is_live else [self.tokens[-1], 50]
        tokens = [*self.tokens, *([50] if appended else [])]
        turn = SentTurn(tokens, len(tokens), "fresh", Sampling(), "", NO_MEDIA)
        self.tokens = turn.tokens
        self.request.prepare(turn)
        await self.request.send(turn, appended)
        outcome = None
        while outcome is None:
            piece = piece_of(await self.request.next(turn), 0)
            turn.tokens += piece.token_ids
            outcome = piece.outcome
        return turn.sampled


@pytest.mark.parametrize("paused", [True, False])
async def test_a_session_that_waits_for_results_goes_on_from_its_tokens(paused: bool) -> None:
    engine = Engine([[7, 8, PAUSE], [ABORT]], [[9, PAUSE], [10, PAUSE]], paused=paused)
    talk = Talk(engine)
    assert await talk.turn() == [7, 8]
    assert await talk.turn() == [9]
    assert engine.prompts == [[1, 2, 3], [1, 2, 3, 7, 8, 50]]
    assert len(engine.aborted) == 1, "nothing of the old request stays in the engine"
    assert await talk.turn() == [10]
    assert not engine.restarts


async def test_each_pause_is_spared() -> None:
    engine = Engine(*[[[7, PAUSE], [ABORT]]] * 5)
    talk = Talk(engine)
    for _ in range(5):
        assert await talk.turn() == [7]
    assert talk.tokens == engine.prompts[-1] + [7] == [1, 2, 3, *[7, 50] * 4, 7]


@pytest.mark.parametrize(
    ("paused", "said"),
    [(True, r"paused the engine.*once the engine is resumed"), (False, r"has aborted .*again$")],
)
@pytest.mark.parametrize("tokens", [[], [7]])
async def test_a_turn_that_decodes_or_queues_is_aborted(
    paused: bool, said: str, tokens: list[int]
) -> None:
    with pytest.raises(RequestAborted, match=said):
        await Talk(Engine([[*tokens, ABORT]], paused=paused)).turn()


async def test_a_resumed_turn_that_decodes_is_aborted() -> None:
    talk = Talk(Engine([[7, PAUSE], [8, ABORT]]))
    await talk.turn()
    with pytest.raises(RequestAborted):
        await talk.turn()


async def test_a_new_request_in_place_of_an_aborted_one_is_aborted_as_others() -> None:
    talk = Talk(Engine([[7, PAUSE], [ABORT]], [[ABORT]]))
    await talk.turn()
    with pytest.raises(RequestAborted):
        await talk.turn()


@pytest.mark.parametrize("tokens", [[], [8]])
async def test_an_engine_that_ends_itself_is_still_told_from_an_abort(tokens: list[int]) -> None:
    engine = Engine([[7, PAUSE], [*tokens, ABORT]], [[9, PAUSE]])
    talk = Talk(engine)
    await talk.turn()
    engine.ends_itself = True
    assert await talk.turn() == [*tokens, 9]
    assert engine.restarts == 1


async def test_a_session_that_was_closed_meanwhile_is_not_sent_again() -> None:
    engine = Engine([[7, PAUSE], [ABORT]], [[9, PAUSE]])
    talk = Talk(engine)
    await talk.turn()
    answer = engine.is_paused

    async def closing() -> bool:
        await talk.request.close(stopped=False)
        return await answer()

    engine.is_paused = closing  # type: ignore[method-assign]
    with pytest.raises(RequestFailed):
        await talk.turn()
    assert len(engine.prompts) == 1


@pytest.mark.parametrize("reason", ["error", "repetition"])
async def test_an_end_of_another_kind_says_that_the_engine_lives(reason: str) -> None:
    with pytest.raises(RequestFailed, match=reason):
        await Talk(Engine([[7, reason]])).turn()
