"""Measures of predicted lengths, as the papers on length prediction report them."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from caesura.scheduler.prompt_lengths.objectives import LEVELS, Array, Lengths, classes_of
from caesura.scheduler.prompt_lengths.training import Row

MAX_COMPARED = 4000
"""The largest number of outputs whose pairs are compared; more are thinned out evenly."""

COVERED = (0.5, 0.8)
"""Shares of a central interval whose coverage is measured."""


@dataclass(frozen=True, slots=True)
class Scores:
    """Measures over `outputs`.

    `l1` is the mean absolute error in tokens, of the point. `r2` is that of the expectation.
    `accuracy` and `f1` (macro) are by SSJF's five classes of the training part. `within_5` and
    `within_15` are shares (LAMPS: Acc-5, Acc-15, in words there). `tau` is Kendall's tau-b, and
    `pairs` the share of pairs of different lengths in the right order, ties counted as half.
    `covered_50` and `covered_80` are the shares of lengths in the central intervals of the
    predicted distribution. `bound` is the share of the variance that prompts can explain at most,
    an upper bound of `r2`; None without several outputs of a prompt. `milliseconds` are those of a
    prompt, if they were measured.
    """

    outputs: int
    l1: float
    r2: float
    accuracy: float
    f1: float
    within_5: float
    within_15: float
    tau: float
    pairs: float
    covered_50: float
    covered_80: float
    bound: float | None = None
    milliseconds: float | None = None

    def to_wire(self) -> dict[str, float | int | None]:
        """Return the measures by name."""
        return asdict(self)


def measure(
    rows: Sequence[Row],
    lengths: Lengths,
    edges: tuple[float, ...],
    milliseconds: float | None = None,
) -> Scores:
    """Return the measures of the predictions for rows; every output of a prompt counts once."""
    index = np.repeat(np.arange(len(rows)), [len(row.samples) for row in rows])
    truth = np.array([tokens for row in rows for tokens in row.samples], dtype=np.float64)
    point, mean, quantiles = lengths.tokens[index], lengths.means[index], lengths.quantiles[index]
    error = np.abs(point - truth)
    tau, pairs = order(mean, truth)
    true_class, said = classes_of(truth, edges), classes_of(point, edges)
    covered = [_coverage(quantiles, truth, share) for share in COVERED]
    variance = float(np.mean((truth - truth.mean()) ** 2))
    return Scores(
        outputs=len(truth),
        l1=float(error.mean()),
        r2=1 - float(np.mean((mean - truth) ** 2)) / variance if variance else 0.0,
        accuracy=float(np.mean(true_class == said)),
        f1=_macro_f1(true_class, said),
        within_5=float(np.mean(error <= 5)),
        within_15=float(np.mean(error <= 15)),
        tau=tau,
        pairs=pairs,
        covered_50=covered[0],
        covered_80=covered[1],
        bound=explainable(rows),
        milliseconds=milliseconds,
    )


def order(predicted: Array, truth: Array) -> tuple[float, float]:
    """Return Kendall's tau-b and the pair accuracy of predictions (n,) for lengths (n,)."""
    step = max(1, -(-len(truth) // MAX_COMPARED))
    predicted, truth = predicted[::step], truth[::step]
    agreed, told, differ = 0.0, 0.0, 0.0
    for index in range(1, len(truth)):
        by_truth = np.sign(truth[index] - truth[:index])
        by_said = np.sign(predicted[index] - predicted[:index])
        agreed += float(by_truth @ by_said)
        told += float(np.count_nonzero(by_said))
        differ += float(np.count_nonzero(by_truth))
    tau = agreed / (told * differ) ** 0.5 if told and differ else 0.0
    return tau, (agreed / differ + 1) / 2 if differ else 0.5


def explainable(rows: Sequence[Row]) -> float | None:
    """Return the share of the variance of outputs that lies between prompts, or None.

    It is the intraclass correlation of a one-way analysis of variance over prompts with several
    outputs: 1 if all outputs of a prompt are equally long, and 0 if a prompt tells nothing.
    """
    samples = [np.array(row.samples, dtype=np.float64) for row in rows if len(row.samples) > 1]
    total = sum(len(sample) for sample in samples)
    if len(samples) < 2:
        return None
    mean = float(np.concatenate(samples).mean())
    within = sum(float(((s - s.mean()) ** 2).sum()) for s in samples) / (total - len(samples))
    between = sum(len(s) * (float(s.mean()) - mean) ** 2 for s in samples) / (len(samples) - 1)
    size = (total - sum(len(s) ** 2 for s in samples) / total) / (len(samples) - 1)
    by_prompt = max(0.0, (between - within) / size)
    return by_prompt / (by_prompt + within) if by_prompt + within > 0 else None


def _coverage(quantiles: Array, truth: Array, share: float) -> float:
    """Return the share of lengths within the central interval that holds `share`."""
    below, above = (1 - share) / 2, (1 + share) / 2
    low = [np.interp(below, LEVELS, row) for row in quantiles]
    high = [np.interp(above, LEVELS, row) for row in quantiles]
    return float(np.mean((truth >= np.floor(low)) & (truth <= np.ceil(high))))


def _macro_f1(truth: NDArray[np.int64], said: NDArray[np.int64]) -> float:
    """Return the mean of the F1 of the classes that occur."""
    scores = []
    for name in np.unique(truth):
        hit = float(np.sum((truth == name) & (said == name)))
        scores.append(2 * hit / float(np.sum(truth == name) + np.sum(said == name)))
    return float(np.mean(scores))
