"""The systems of InferCept's Fig. 2 to 4, and the cells in which they are compared.

The paper's systems have no prefix cache. vLLM takes up to 2,048 query tokens in a step, whole
prompts as a rule, as ImprovedDiscard and Preserve do; what chunks takes 512.
"""

from dataclasses import replace

from caesura.simulator.policy import POLICIES, Policy, parse_policy
from caesura.simulator.study.plan import Cell

WORKLOAD = "mix"
SMALL = "gptj-6b-a100-40g"
LARGE = {"vicuna-13b-a100-40g": "one GPU", "vicuna-13b-a100-40g-tp2": "two GPUs"}

PAPER_RATE = 2.0
"""Requests per second of Fig. 4."""

EQUAL_RATE = 0.8
"""Just beyond what vLLM sustains here: recomputation wastes 26 % of its memory over a whole run, as
in the paper (27 %)."""


def _changed(base: str, name: str, handling: str = "", **fields: object) -> Policy:
    policy = POLICIES[base]
    settings = {**policy.settings, **({"handling": handling} if handling else {})}
    return replace(policy, name=name, settings=settings, **fields)  # type: ignore[arg-type]


DISCARD = _changed("vllm-discard", "vLLM (discard)")
IMPROVED = _changed("vllm-discard", "ImprovedDiscard", session_order=True)
PRESERVE = _changed("preserve", "Preserve")
SWAP = _changed("swap", "Swap")
INFERCEPT = _changed("infercept-strict", "InferCept", prefix_caching=False)
MODERN = _changed("stock", "vLLM today (prefix cache)")

STEPS: tuple[tuple[Policy, float | None], ...] = (
    (DISCARD, None),
    (IMPROVED, -24.5),
    (_changed("improved-discard", "+ chunked recomputation", chunk_tokens=512), -7.8),
    (
        _changed("infercept-strict", "+ budgeted swap", "budgeted-swap", prefix_caching=False),
        -12.7,
    ),
    (
        _changed(
            "infercept-strict",
            "+ preserve by heuristic",
            "heuristic-preserve",
            prefix_caching=False,
        ),
        -46.1,
    ),
    (INFERCEPT, -46.4),
    (replace(parse_policy("caesura:ranking=caesura"), name="Caesura"), None),
)
"""Fig. 4: each technique added to those before, and by how many percent that changes normalized
latency in the paper; the last is not in it."""

CURVES: tuple[tuple[Policy, tuple[float, ...]], ...] = (
    (DISCARD, (0.3, 0.4, 0.5, 0.6, 0.8)),
    (IMPROVED, (0.3, 0.4, 0.5, 0.6, 0.8)),
    (PRESERVE, (0.5, 0.8, 1.0, 1.25, 1.5, 2.0)),
    (SWAP, (0.5, 0.8, 1.0, 1.25, 1.5, 2.0)),
    (INFERCEPT, (0.3, 0.5, 0.8, 1.5, 2.0, 2.25, 2.5)),
    (MODERN, (0.5, 0.8, 1.0, 1.25)),
)
"""Fig. 2, 6B: each system at rates around its knee; beyond it the trace's length decides."""

QUICK = {
    DISCARD.name: (0.3, 0.4, 0.5, 0.6, 0.8),
    IMPROVED.name: (0.3, 0.4, 0.5, 0.6, 0.8),
    PRESERVE.name: (0.5, 0.8, 1.25, 2.0),
    SWAP.name: (0.5, 0.8, 2.0),
    INFERCEPT.name: (0.5, 0.8, 2.0, 2.5),
}
"""Of these rates, those of a quick look."""

LARGE_CURVES: dict[str, tuple[tuple[Policy, tuple[float, ...]], ...]] = {
    "vicuna-13b-a100-40g": (
        (DISCARD, (0.1, 0.15, 0.2, 0.3)),
        (INFERCEPT, (0.1, 0.15, 0.2, 0.3, 0.4, 0.6)),
    ),
    "vicuna-13b-a100-40g-tp2": (
        (DISCARD, (0.2, 0.3, 0.4, 0.6)),
        (INFERCEPT, (0.2, 0.3, 0.4, 0.6, 1.0, 1.5, 2.0)),
    ),
}


def cell(
    policy: Policy,
    rate: float,
    seed: int,
    seconds: float,
    machine: str = SMALL,
    window: float | None = None,
) -> Cell:
    """Return the cell of a system at a rate."""
    return Cell(WORKLOAD, None, machine, policy, rate, seed, seconds, window)


def curve_cells(
    seconds: float, seeds: tuple[int, ...], machine: str = SMALL, quick: bool = False
) -> list[Cell]:
    """Return the cells of Fig. 2 for a machine; `quick`: for the small one fewer."""
    curves = CURVES if machine == SMALL else LARGE_CURVES[machine]
    return [
        cell(policy, rate, seed, seconds, machine)
        for seed in seeds
        for policy, rates in curves
        for rate in rates
        if not (quick and machine == SMALL) or rate in QUICK.get(policy.name, ())
    ]


def step_cells(seconds: float, seeds: tuple[int, ...]) -> list[Cell]:
    """Return the cells of Fig. 4, at both rates."""
    return [
        cell(policy, rate, seed, seconds)
        for seed in seeds
        for rate in (EQUAL_RATE, PAPER_RATE)
        for policy, _ in STEPS
    ]


def waste_cells(seconds: float, seeds: tuple[int, ...]) -> list[Cell]:
    """Return the cells of the waste: cut off when arrivals end, so that nothing drains."""
    return [
        cell(policy, rate, seed, seconds, window=seconds)
        for seed in seeds
        for rate in (EQUAL_RATE, PAPER_RATE)
        for policy in (DISCARD, IMPROVED, PRESERVE, SWAP, INFERCEPT)
    ]
