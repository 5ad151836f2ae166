import pytest

from caesura.tools import Dispatcher, Registry, ToolCall, tool
from caesura.tools.errors import Permanent, ToolError, Unavailable, asked_pause_seconds

pytestmark = pytest.mark.timeout(120)


class Run:
    """A call of a tool that raises these errors in turn, and the pauses in between."""

    def __init__(self, *errors: BaseException, retries: int = 5) -> None:
        self.errors = list(errors)
        self.pauses: list[float] = []
        self.spread = 1.0

        @tool(retries=retries, safe_to_repeat=True)
        async def flaky() -> str:
            if self.errors:
                raise self.errors.pop(0)
            return "well"

        self.session = Dispatcher(Registry([flaky]), sleep=self._sleep, random=lambda: self.spread)

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)

    async def __call__(self) -> tuple[str | None, str, int]:
        result = await self.session.run(ToolCall("c", "flaky", "{}"))
        return result.error, result.content, result.attempts


async def test_full_jitter():
    run = Run(OSError(), OSError(), OSError())
    run.spread = 0.25
    assert await run() == (None, "well", 4)
    assert run.pauses == [0.025, 0.05, 0.1]
    run = Run(OSError())
    run.spread = 0.0
    await run()
    assert run.pauses == [0.0]


async def test_a_permanent_failure_is_not_retried():
    run = Run(Permanent("there is no such page"))
    assert await run() == ("failed", "error: there is no such page", 1)
    assert run.pauses == []


async def test_any_exception_may_say_so():
    error = KeyError("no such row")
    error.safe_to_retry = False
    assert (await Run(error)())[2] == 1


async def test_the_asked_pause_is_made():
    run = Run(Unavailable("busy", 7), ToolError("broken"), Unavailable("busy"))
    run.spread = 0.5
    assert await run() == (None, "well", 4)
    assert run.pauses == [7.05, 0.1, 0.2]


async def test_who_asks_for_too_long_a_pause_is_not_asked_again():
    run = Run(Unavailable("come back in an hour", 3600))
    assert await run() == ("failed", "error: come back in an hour", 1)


@pytest.mark.parametrize(
    "asked", [None, -1, 0, float("nan"), float("inf"), "soon", object(), 10**400]
)
def test_a_pause_that_makes_no_sense_is_none(asked):
    error = OSError()
    error.retry_after = asked
    assert asked_pause_seconds(error) == 0.0
