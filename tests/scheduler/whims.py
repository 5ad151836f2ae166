"""A handling that changes its mind at every step, at random: no mechanism may depend on reason."""

import random
from collections.abc import Sequence

from caesura.intercept.kv.views import Decision, PausedKVView, StepView


class Whims:
    name = "whims"
    every_step = True

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    @property
    def write_behind(self) -> bool:
        return self._rng.random() < 0.5

    def decide(self, paused: Sequence[PausedKVView], step: StepView) -> list[Decision]:
        chosen = [one for one in paused if self._rng.random() < 0.7]
        self._rng.shuffle(chosen)
        actions = ("preserve", "swap", "swap", "swap", "discard")
        weights = (40, 20, 20, 20, 3)
        return [
            Decision(one.key, self._rng.choices(actions, weights)[0])  # type: ignore[arg-type]
            for one in chosen
        ]

    def victims(
        self, paused: Sequence[PausedKVView], step: StepView, needed: int, forced: bool
    ) -> list[tuple[str, int]]:
        victims = []
        for one in self._rng.sample(list(paused), len(paused)):
            if needed <= 0:
                break
            taken = self._rng.randint(1, max(1, one.resident)) if not forced else one.resident
            victims.append((one.key, min(taken, one.resident)))
            needed -= taken
        return [] if needed > 0 and not forced and self._rng.random() < 0.5 else victims
