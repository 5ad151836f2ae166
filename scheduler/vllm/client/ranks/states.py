"""The states of data-parallel engines as one."""

from collections.abc import Mapping, Sequence
from typing import Any


def combined(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the sums of the engines' counts, and with several the single ones as `engines`.

    What is not a count is that of the first engine.
    """
    if len(states) == 1:
        return dict(states[0])
    return {**_sums(states), "engines": [dict(state) for state in states]}


def _sums(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    first, found = states[0], {}
    for name, value in first.items():
        values = [state[name] for state in states if name in state]
        if isinstance(value, Mapping):
            found[name] = _sums(values)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found[name] = sum(values)
        else:
            found[name] = value
    return found
