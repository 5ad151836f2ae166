"""The pause's table of transitions, counted out."""

import itertools

import pytest

from caesura.intercept.kv.states import TRANSITIONS, IllegalStep, Pause, State, Step


def pause_in(state: State) -> Pause:
    return Pause("r", paused_at=10.0, frontier_tokens=100, state=state)


@pytest.mark.parametrize(("state", "step"), list(itertools.product(State, Step)))
def test_every_state_and_step(state: State, step: Step) -> None:
    pause = pause_in(state)
    if (state, step) in TRANSITIONS:
        pause.take(step)
        assert pause.state is TRANSITIONS[state, step]
    else:
        with pytest.raises(IllegalStep, match=f"{step.value!r} from state {state.value!r}"):
            pause.take(step)
        assert pause.state is state


def test_every_state_but_closed_can_be_closed() -> None:
    closable = {state for state, step in TRANSITIONS if step is Step.CLOSE}
    assert closable == set(State) - {State.CLOSED}


def test_kv_is_reclaimed_once() -> None:
    pause = pause_in(State.PAUSED)
    pause.take(Step.RECLAIM)
    assert not pause.held
    with pytest.raises(IllegalStep):
        pause.take(Step.RECLAIM)


def test_report() -> None:
    pause = pause_in(State.PAUSED)
    pause.take(Step.RETURN, now=13.0)
    report = pause.report(13.5, context_tokens=100, cached_tokens=100)
    assert (report.handling, report.pause_seconds, report.queue_seconds) == ("preserve", 3.0, 0.5)
    dropped = pause_in(State.PAUSED)
    dropped.take(Step.RECLAIM)
    dropped.take(Step.RETURN, now=11.0)
    assert dropped.report(11.0, 100, 32).handling == "discard"
