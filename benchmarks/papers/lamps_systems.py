"""The systems that LAMPS' figures compare, and the steps from one to the next.

LAMPS is told the truth (`prediction=oracle`): the paper takes output lengths from the data set of
InferCept, and predicts them on ToolBench with a mean absolute error of 3 words. Whatever would be
lost to its predictor is not lost here. Of pauses the paper knows the mean by tool; here each is
known.
"""

from dataclasses import replace
from typing import Any

from caesura.simulator.policy import POLICIES, Policy

ORACLE = "oracle"

ORACLE_BUT_PAUSES = "oracle:knows=lengths+calls+results"
"""For LAMPS' order with InferCept's handling, whose estimate of a pause is its own."""

THRESHOLD_NAMES = {
    0: "no threshold",
    30: "threshold 30",
    100: "lamps-paper",
    300: "threshold 300",
    1000: "threshold 1000",
}
"""LAMPS by the steps after which a request starves; 0: never. The paper takes 100 (Figure 9)."""

ERRORS = (0.05, 0.1, 0.3, 0.5)
"""Standard deviation of a prediction over its truth (Figure 11)."""


def derived(base: str, name: str, **settings: Any) -> Policy:
    """Return the named policy under another name, with these settings changed."""
    policy = POLICIES[base]
    return replace(policy, name=name, settings={**policy.settings, **settings})


def starving(threshold: int) -> Policy:
    """Return LAMPS with that starvation threshold, in steps."""
    name, ranking = THRESHOLD_NAMES[threshold], f"lamps:starvation_steps={threshold}"
    return derived("lamps-paper", name, ranking=ranking, prediction=ORACLE)


def mistaken(error: float) -> Policy:
    """Return LAMPS whose predictions are drawn from N(value, error * value)."""
    return derived("lamps-paper", f"error {error:.0%}", prediction=f"{ORACLE}:error={error:g}")


SYSTEMS: dict[str, Policy] = {
    policy.name: policy
    for policy in (
        POLICIES["vllm-discard"],
        POLICIES["stock"],
        POLICIES["infercept-strict"],
        derived("infercept-strict", "infercept-backfilled", backfill=True),
        POLICIES["infercept"],
        derived("infercept-strict", "lamps-handling", handling="lamps", prediction=ORACLE),
        derived("lamps-paper", "lamps-handling-backfilled", ranking="fcfs", prediction=ORACLE),
        derived("lamps-paper", "lamps-ranking", handling="infercept", prediction=ORACLE_BUT_PAUSES),
        derived("lamps-paper", "lamps-paper", prediction=ORACLE),
        derived("lamps-paper", "lamps-own-memory", ranking="lamps:others=false", prediction=ORACLE),
        derived("lamps", "lamps", prediction=ORACLE),
        derived("lamps-infercept", "lamps-infercept", prediction=ORACLE_BUT_PAUSES),
        derived("caesura", "caesura", ranking="caesura"),
        *(starving(steps) for steps in THRESHOLD_NAMES if steps != 100),
        *map(mistaken, ERRORS),
    )
}
"""By name. `vllm-discard` is the paper's vLLM: it had no prefix cache; `stock` is today's, which
has one. `lamps-handling` is the paper's "LAMPS w/o scheduling"; `...-backfilled` lets a request
that fits go before one that does not. `infercept`, `lamps`, `lamps-infercept` and `caesura` compute
as many query tokens in a step as saturate the device, vLLM up to 2,048 and all others 512."""

PAPER = ("vllm-discard", "infercept-strict", "lamps-paper")
"""The systems of the paper, each in the form that the paper gives it."""

OTHERS = (
    "stock",
    "infercept-backfilled",
    "infercept",
    "lamps-ranking",
    "lamps-own-memory",
    "lamps",
    "lamps-infercept",
    "caesura",
)
"""Those that it does not have."""

FROM_INFERCEPT = (
    ("infercept-strict", "InferCept as published: strict order of arrival"),
    ("infercept-backfilled", "+ back-filling"),
    ("lamps-ranking", "+ least memory over time first"),
    ("lamps-paper", "+ one handling per pause, by its prediction"),
)
"""From InferCept to LAMPS, one change at a time."""

FROM_VLLM = (
    ("vllm-discard", "vLLM: a call ends the request"),
    (
        "lamps-handling",
        "+ pauses in the engine, prefix cache, 512 tokens a step, predicted handling"
        " (LAMPS w/o scheduling)",
    ),
    ("lamps-handling-backfilled", "+ back-filling"),
    ("lamps-paper", "+ least memory over time first (LAMPS)"),
)
"""Figure 10's breakdown, with the ranking's two effects apart."""
