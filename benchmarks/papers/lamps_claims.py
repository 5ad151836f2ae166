"""What the paper says in numbers (section 6.2), each as a change that LAMPS makes to a measure.

Its other figures are curves without numbers in the text; of these only the direction can be held
against the runs.
"""

from dataclasses import dataclass

from benchmarks.papers.lamps_run import Setup

GPTJ = "gptj-6b-a100-40g"
"""The paper limits 80 GB cards to 40 GB, as this one; 24 GB of it are KV."""

VICUNA = "vicuna-13b-a100-40g-tp2"
"""Both cards of the paper's machine, since it has curves up to several requests per second."""

VICUNA_ONE = "vicuna-13b-a100-40g"
"""One card: beside the weights it holds 10.6 GB of KV, 13,000 tokens."""

SINGLE, MULTI, TOOLBENCH = "lamps-single", "lamps-multi", "toolbench"

LATENCY, TTFT, THROUGHPUT = "latency_mean", "ttft_mean", "sessions_per_second"

INFERCEPT, VLLM = "infercept-strict", "vllm-discard"

LAMPS = "lamps-paper"


@dataclass(frozen=True, slots=True)
class Claim:
    """The paper: `system` changes `measure` by `change` (-0.27: 27 % less) against `base`.

    `about` says how that is put, "up to" or "over", or at which other rate; else it is empty.
    """

    figure: int
    setup: Setup
    measure: str
    base: str
    change: float
    about: str = ""
    system: str = LAMPS


def _claims(
    figure: int,
    setup: Setup,
    measure: str,
    infercept: float | None,
    vllm: float | None = None,
    about: str = "",
) -> list[Claim]:
    against = ((INFERCEPT, infercept), (VLLM, vllm))
    return [
        Claim(figure, setup, measure, base, change / 100, about)
        for base, change in against
        if change is not None
    ]


GPTJ_SINGLE_3, GPTJ_SINGLE_5 = Setup(GPTJ, SINGLE, 3), Setup(GPTJ, SINGLE, 5)
GPTJ_SINGLE_7 = Setup(GPTJ, SINGLE, 7)
"""Where InferCept begins to queue here as it does at 5/s in the paper."""

GPTJ_MULTI_3, GPTJ_TOOLBENCH_3 = Setup(GPTJ, MULTI, 3), Setup(GPTJ, TOOLBENCH, 3)
VICUNA_SINGLE_3, VICUNA_SINGLE_4 = Setup(VICUNA, SINGLE, 3), Setup(VICUNA, SINGLE, 4)
VICUNA_MULTI_4, VICUNA_TOOLBENCH_3 = Setup(VICUNA, MULTI, 4), Setup(VICUNA, TOOLBENCH, 3)

CLAIMS = (
    *_claims(6, GPTJ_SINGLE_3, TTFT, -4.61, -22.86),
    *_claims(6, GPTJ_SINGLE_3, LATENCY, 0.78, -14.48),
    *_claims(6, GPTJ_SINGLE_5, TTFT, -91.27, -95.71),
    *_claims(6, GPTJ_SINGLE_5, LATENCY, -65.51, -90.44),
    *_claims(6, GPTJ_SINGLE_7, TTFT, -91.27, -95.71, "at 5/s"),
    *_claims(6, GPTJ_SINGLE_7, LATENCY, -65.51, -90.44, "at 5/s"),
    *_claims(6, GPTJ_MULTI_3, TTFT, -95.93),
    *_claims(6, GPTJ_MULTI_3, LATENCY, -63.32),
    *_claims(6, GPTJ_TOOLBENCH_3, TTFT, -87.04, -99.51),
    *_claims(6, GPTJ_TOOLBENCH_3, LATENCY, -27.24, -96.07),
    *_claims(6, VICUNA_SINGLE_3, TTFT, -4.78, -18.65),
    *_claims(6, VICUNA_SINGLE_3, LATENCY, -0.24, -15.73),
    Claim(6, VICUNA_SINGLE_4, TTFT, INFERCEPT, -0.98, "over"),
    Claim(6, VICUNA_SINGLE_4, LATENCY, INFERCEPT, -0.82, "up to"),
    Claim(6, VICUNA_MULTI_4, TTFT, INFERCEPT, -0.89, "over"),
    Claim(6, VICUNA_MULTI_4, LATENCY, INFERCEPT, -0.78, "up to"),
    *_claims(6, VICUNA_TOOLBENCH_3, TTFT, -75.46),
    *_claims(6, VICUNA_TOOLBENCH_3, LATENCY, -62.61, -90.25),
    Claim(8, VICUNA_SINGLE_4, THROUGHPUT, INFERCEPT, 0.4681, "up to"),
    Claim(8, VICUNA_SINGLE_4, THROUGHPUT, VLLM, 0.7134, "up to"),
    Claim(8, VICUNA_MULTI_4, THROUGHPUT, INFERCEPT, 0.5023, "up to"),
    Claim(8, VICUNA_MULTI_4, THROUGHPUT, VLLM, 1.44, "over"),
)
"""Section 6.2; "up to" and "over" have no rate in the text but for the one that they stand at."""
