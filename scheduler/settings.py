"""The scheduler's settings, given under `caesura` in vLLM's `additional_config`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from random import Random
from typing import Any

from caesura.intercept.calls.formats import resolve
from caesura.intercept.kv.costs import MIN_LINK_SHARE
from caesura.intercept.kv.handling import DEFAULT_HANDLING, HANDLINGS
from caesura.scheduler.policy.admission import StepRules
from caesura.scheduler.policy.names import (
    DEFAULT_ADMISSION,
    DEFAULT_PREDICTOR,
    DEFAULT_RANKING,
    make_admission,
    make_predictor,
    make_ranking,
)
from caesura.scheduler.policy.shares import Accounts
from caesura.scheduler.policy.slo import EXAMPLE, Slo

LIMITS = {
    "max_misfits": 0,
    "max_overtaken_steps": 1,
    "max_convoy_blocks": 0,
    "max_extra_requests": 0,
    "chunk_saturations": 1,
    "long_step_decodes": 0,
    "max_copy_failures": 1,
}
"""The smallest allowed value of each setting that is a whole number."""

FAIR = ("off", "tenant")
"""Between whom the engine is shared fairly."""

POLICIES = ("handling", "ranking", "admission")
"""The settings that a recording always tells."""

UNTOLD = ("calibration", "formats", "pauses", "records", "weights")
"""The settings that no recording tells.

They are paths, records themselves, the names of tenants, and how the model writes its calls.
"""

NO_BOUND = 1 << 62
"""A number of steps that no request waits."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of paused KV, of the queue's order, and of records.

    `handling` decides about the KV cache of paused requests. `ranking` orders the waiting
    requests. `admission` may make a request wait although its blocks are free. Both take
    parameters: `caesura:beta=50`, `past-future:reserve=0.05`. `backfill` and the five limits after
    it apply under every ranking and admission; `StepRules` describes them. `prediction` is the
    predictor of lengths, pauses and calls. `length_predictor` is a directory of `caesura predict
    train`: a process beside the engine predicts the first segments of sessions from their prompts.

    `slo` is an objective such as `ttft=2,tpot=0.1`, in seconds (`caesura.scheduler.policy.slo`).
    Requests that can still meet it go before those that cannot, each in the ranking's order. Then
    `max_overtaken_seconds` alone bounds how long a request is overtaken.

    With `fair: tenant`, tenants share the engine by virtual time (`Accounts`), and every other
    order holds within a tenant. `weights` are by tenant, and 1 for all others.

    `chunk` is the largest number of query tokens in a step that decodes. `auto` uses the
    calibrated saturation of the device, or vLLM's limit without a calibration. `vllm` uses
    `max_num_batched_tokens`. `chunk_saturations` is the number of saturations in such a step. With
    `auto`, a step in which at most `long_step_decodes` requests decode is as long as vLLM's if it
    can compute all that waits.
    While fewer than `write_behind_free_share` of all blocks are free, the idle link makes copies
    that may never be needed. Nothing is swapped while the link loads at less than `min_link_share`
    of the rate at which the engine recomputes, or while copies hold up the steps beside them for
    longer than recomputing takes; for a request that is alone, nothing is loaded below four times
    that share. After `max_copy_failures` failures in a row, copies to the host stop.

    `calibration` is the path of a file that `caesura calibrate` wrote. `pauses` is the path of a
    file that keeps observed pauses and sessions over restarts. After `pause_deadline` seconds of a
    pause, its KV cache is discarded, on the host too. The KV cache of a request that ended with
    calls is kept for its follow-up for `retention` seconds (0: not at all). `formats` are those of
    the calls of client-side tools; None reads them off the model's chat template. With `records`,
    every pause and every step is recorded.
    """

    handling: str = DEFAULT_HANDLING
    ranking: str = DEFAULT_RANKING
    admission: str = DEFAULT_ADMISSION
    slo: str | None = None
    fair: str = "off"
    weights: Mapping[str, float] = field(default_factory=dict)
    backfill: bool = True
    max_misfits: int = 64
    max_overtaken_steps: int = 512
    max_overtaken_seconds: float = 60.0
    max_convoy_blocks: int = 8
    max_extra_requests: int = 8
    prediction: str = DEFAULT_PREDICTOR
    length_predictor: str | None = None
    chunk: int | str = "auto"
    chunk_saturations: int = 2
    long_step_decodes: int = 8
    write_behind_free_share: float = 0.4
    min_link_share: float = MIN_LINK_SHARE
    max_copy_failures: int = 3
    calibration: str | None = None
    pauses: str | None = None
    pause_deadline: float = 600.0
    retention: float = 120.0
    formats: Sequence[str] | None = None
    records: bool = True

    def __post_init__(self) -> None:
        if self.handling not in HANDLINGS:
            known = ", ".join(sorted(HANDLINGS))
            raise ValueError(f"caesura.handling must be one of {known}, got {self.handling!r}")
        if not self.prediction.startswith("oracle"):  # only a simulation can make an oracle
            make_predictor(self.prediction)
        make_ranking(self.ranking)
        make_admission(self.admission, Random(0))
        if self.slo is not None:
            if not isinstance(self.slo, str):
                raise ValueError(f"caesura.slo must be text such as {EXAMPLE}, got {self.slo!r}")
            Slo.parse(self.slo)
        self._check_fair()
        self._check_chunk()
        self._check_limits()
        self._check_formats()
        for name in ("pause_deadline", "retention"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
                raise ValueError(f"caesura.{name} must be a number of seconds >= 0, got {value!r}")
        for name in ("calibration", "pauses", "length_predictor"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise ValueError(f"caesura.{name} must be a path, got {value!r}")

    def _check_fair(self) -> None:
        if self.fair not in FAIR:
            raise ValueError(f"caesura.fair must be {' or '.join(FAIR)}, got {self.fair!r}")
        if not isinstance(self.weights, Mapping):
            raise ValueError(f"caesura.weights must be numbers by tenant, got {self.weights!r}")
        Accounts(self.weights)

    def _check_formats(self) -> None:
        if self.formats is not None:
            if isinstance(self.formats, str) or not isinstance(self.formats, Sequence):
                raise ValueError(
                    f"caesura.formats must be a list of call formats, got {self.formats!r}"
                )
            resolve(self.formats, ())

    def _check_limits(self) -> None:
        for name, least in LIMITS.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(
                    f"caesura.{name} must be a whole number of at least {least}, got {value!r}"
                )
        seconds = self.max_overtaken_seconds
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
            raise ValueError(
                f"caesura.max_overtaken_seconds must be a number of seconds > 0, got {seconds!r}"
            )
        link_share = self.min_link_share
        if (
            isinstance(link_share, bool)
            or not isinstance(link_share, int | float)
            or not link_share >= 0
        ):
            raise ValueError(
                "caesura.min_link_share must be a number >= 0, as a share of the rate of"
                f" recomputation, got {link_share!r}"
            )
        share = self.write_behind_free_share
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
            raise ValueError(
                f"caesura.write_behind_free_share must be a share from 0 to 1, got {share!r}"
            )

    def told(self) -> dict[str, Any]:
        """Return what a recording tells: the policies, and every other setting that was changed."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        default = {one.name: one.default for one in fields(self)}
        return {
            name: value
            for name, value in values.items()
            if name not in UNTOLD and (name in POLICIES or value != default[name])
        }

    @property
    def step_rules(self) -> StepRules:
        """Return the rules of a step's admissions."""
        return StepRules(
            backfill=self.backfill,
            max_misfits=self.max_misfits,
            max_overtaken_steps=self.max_overtaken_steps if self.slo is None else NO_BOUND,
            max_overtaken_seconds=self.max_overtaken_seconds,
            max_convoy_blocks=self.max_convoy_blocks,
            max_extra_requests=self.max_extra_requests,
        )

    def _check_chunk(self) -> None:
        number = isinstance(self.chunk, int) and not isinstance(self.chunk, bool)
        if not (self.chunk in ("auto", "vllm") or (number and int(self.chunk) > 0)):
            raise ValueError(
                f"caesura.chunk must be auto, vllm or a number of tokens, got {self.chunk!r}"
            )

    @classmethod
    def from_mapping(cls, given: Mapping[str, Any]) -> "Settings":
        """Return settings from a mapping; raises `ValueError` that names the wrong setting."""
        known = {field.name for field in fields(cls)}
        unknown = sorted(set(given) - known)
        if unknown:
            raise ValueError(
                f"caesura has no setting {', '.join(unknown)};"
                f" choose from: {', '.join(sorted(known))}"
            )
        return cls(**given)
