"""What the scheduler is told at its start, under `caesura` in vLLM's `additional_config`."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from random import Random
from typing import Any

from caesura.intercept.kv.handling import DEFAULT_HANDLING, HANDLINGS
from caesura.scheduler.admission import DEFAULT_ADMISSION, make_admission
from caesura.scheduler.predict import DEFAULT_PREDICTOR, make_predictor
from caesura.scheduler.rank import DEFAULT_RANKING, make_ranking


@dataclass(frozen=True, slots=True)
class Settings:
    """How paused requests are treated, and who runs next.

    `handling` names what happens to the KV cache of paused requests. `ranking` names the order in
    which waiting requests are tried, `admission` what may keep them waiting although their blocks
    are free, each with its parameters: `caesura:beta=50`, `past-future:reserve=0.05`. `backfill`:
    whoever fits goes before somebody who does not. `prediction` says where expected lengths, pauses
    and calls come from. `chunk` is the most query tokens of a step in which somebody decodes:
    `auto` goes by what saturates the device, if there is a calibration (else by vLLM's), `vllm` by
    its `max_num_batched_tokens`; or a number.

    `calibration` is the path of a file that `caesura calibrate` has written. `pauses` is the path
    of a file that keeps what was observed of tools' pauses and of sessions over restarts.
    `pause_deadline` is how many seconds a pause may last before its KV cache is given up
    altogether, on the host too; `retention` how many seconds the KV cache of a request that ended
    with calls is kept for its follow-up (0: not at all). `records` has a record made of every
    pause and every step.
    """

    handling: str = DEFAULT_HANDLING
    ranking: str = DEFAULT_RANKING
    admission: str = DEFAULT_ADMISSION
    backfill: bool = True
    prediction: str = DEFAULT_PREDICTOR
    chunk: int | str = "auto"
    calibration: str | None = None
    pauses: str | None = None
    pause_deadline: float = 600.0
    retention: float = 120.0
    records: bool = True

    def __post_init__(self) -> None:
        if self.handling not in HANDLINGS:
            known = ", ".join(sorted(HANDLINGS))
            raise ValueError(f"caesura.handling must be one of {known}, not {self.handling!r}")
        if not self.prediction.startswith("oracle"):  # which takes a simulation to be made
            make_predictor(self.prediction)
        make_ranking(self.ranking)
        make_admission(self.admission, Random(0))
        self._check_chunk()
        for name in ("pause_deadline", "retention"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
                raise ValueError(f"caesura.{name} must be a number of seconds, not {value!r}")
        for name in ("calibration", "pauses"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise ValueError(f"caesura.{name} must be a path, not {value!r}")

    def _check_chunk(self) -> None:
        number = isinstance(self.chunk, int) and not isinstance(self.chunk, bool)
        if not (self.chunk in ("auto", "vllm") or (number and int(self.chunk) > 0)):
            raise ValueError(
                f"caesura.chunk must be auto, vllm or a number of tokens, not {self.chunk!r}"
            )

    @classmethod
    def from_mapping(cls, given: Mapping[str, Any]) -> "Settings":
        """Read settings; raises `ValueError` naming what is wrong."""
        known = {field.name for field in fields(cls)}
        unknown = sorted(set(given) - known)
        if unknown:
            raise ValueError(
                f"caesura has no setting {', '.join(unknown)}; there are {', '.join(sorted(known))}"
            )
        return cls(**given)
