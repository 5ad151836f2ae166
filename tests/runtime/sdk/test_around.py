"""What stands around an engine's session passes on all that the engine tells."""

from typing import Any

from caesura.runtime.engine import SessionAround


class Bare:
    """A session that tells nothing."""

    def __init__(self) -> None:
        self.done: list[Any] = []

    async def remember(self, answer: Any) -> None:
        self.done.append(answer)

    async def expect_pause(self, seconds: float) -> None:
        self.done.append(seconds)

    async def close(self, *, follow_up: bool = False) -> None:
        self.done.append(follow_up)


class Telling(Bare):
    """A session as vLLM's, with all that it tells."""

    def __init__(self) -> None:
        super().__init__()
        self.request_id = "r"
        self.tokens = [1, 2]
        self.context_tokens = 2
        self.sent_at = 5.0
        self.trace_headers: Any = None


NAMES = ("request_id", "tokens", "context_tokens", "sent_at", "trace_headers")


def around(session: Any) -> SessionAround:
    """Two of them, as a hooked session of an engine on another event loop is."""
    return SessionAround(SessionAround(session))  # type: ignore[arg-type]


def test_what_the_engine_tells_is_passed_on_and_headers_reach_it() -> None:
    inner = Telling()
    session = around(inner)
    session.trace_headers = dict
    assert inner.trace_headers is dict
    assert [getattr(session, each) for each in NAMES] == ["r", [1, 2], 2, 5.0, dict]


async def test_an_engine_that_tells_nothing_is_given_no_headers() -> None:
    inner = Bare()
    session = around(inner)
    session.trace_headers = dict
    assert not hasattr(inner, "trace_headers")
    assert [getattr(session, each) for each in NAMES] == [None] * 5
    await session.remember([{"role": "assistant"}])
    await session.expect_pause(2.0)
    await session.close(follow_up=True)
    assert inner.done == [[{"role": "assistant"}], 2.0, True]
