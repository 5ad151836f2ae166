"""vLLM's balancer of data-parallel engines learns that a request is over, whatever its kind.

It counts each request as load from its first chunk until the engine has named it as finished. What
only the scheduler of Caesura knows would be counted for ever.
"""

from collections import defaultdict
from typing import Any

import pytest

from .world import World, make_scheduler

CALL = "sum [calc(1+2) ->"


@pytest.fixture
def scheduler() -> Any:
    made = make_scheduler(host_blocks=20)
    # As in an engine with data parallelism.
    made.finished_req_ids_dict = defaultdict(set)
    return made


def told(outputs: dict[int, Any]) -> set[str]:
    return set().union(*(each.finished_requests or () for each in outputs.values()))


@pytest.fixture
def finished(scheduler: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids that the balancer is told, in order."""
    names: list[str] = []
    update = scheduler.update_from_output

    def spy(*given: Any) -> Any:
        outputs = update(*given)
        names.extend(sorted(told(outputs)))
        return outputs

    monkeypatch.setattr(scheduler, "update_from_output", spy)
    return names


def test_a_control_message_is_over_with_its_answer(scheduler: Any, finished: list[str]) -> None:
    world = World(scheduler)
    request = world._request("command-1", [0], False, None, 1, {"caesura_control": "state"})
    scheduler.add_request(request)
    while scheduler.has_requests():
        world.step()
    assert finished == ["command-1"]
    assert not scheduler.parts.control.owes_answers


def test_the_end_of_an_input_that_comes_late_is_over_too(
    scheduler: Any, finished: list[str]
) -> None:
    """The session has ended in the engine before its client closes the input."""
    world = World(scheduler)
    session = world.session("a", range(40), CALL, " 3]", " done")
    world.run()
    assert session.finished
    world.plain("b", range(20))
    world.run()
    assert finished.count("a") == 2
    assert finished.count("b") == 1
