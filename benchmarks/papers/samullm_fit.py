"""How far two latency models are from timed vLLM iterations: SamuLLM's, and the roofline.

    python -m benchmarks.papers.samullm_fit VLLM_ITER_LATENCY.csv.gz

The CSV is that of `benchmarks/data/make_samullm_fits.py`; what is compared are the iterations that
the fits have not seen. `sum` is the predicted time of all of them together over the measured one,
which is what counts in a simulation. The roofline is compared with the model's execution alone
(`comp`), since the rest of an iteration is the Python of an early vLLM.
"""

import sys
from collections.abc import Iterator

import numpy as np

from benchmarks.data.make_samullm_fits import Array, Rows, held_out, read
from caesura.simulator.latency.analytic import A100_80G, LLAMA_2_7B, LLAMA_2_13B, roofline
from caesura.simulator.latency.samullm import samullm
from caesura.simulator.machine import LatencyModel, StepShape

PUBLISHED = {"Llama-2-7b-chat-hf": LLAMA_2_7B, "Llama-2-13b-hf": LLAMA_2_13B}


def shapes(phase: str, rows: Rows) -> Iterator[StepShape]:
    columns = (rows[name].astype(int) for name in ("requests", "total", "longest"))
    for requests, total, longest in zip(*columns, strict=True):
        if phase == "decode":
            yield StepShape(requests, requests, requests, total, longest, 0.0)
        else:
            padded = requests * longest  # as that vLLM computed them
            yield StepShape(padded, requests, 0, padded, longest, padded * (longest + 1) / 2)


def ratios(model: LatencyModel, phase: str, rows: Rows, column: str) -> tuple[Array, float]:
    """Return predicted over measured: of each iteration that is held out, and of their sum."""
    held = {name: values[held_out(rows)] for name, values in rows.items()}
    predicted = np.array([model.seconds(shape) for shape in shapes(phase, held)])
    return predicted / held[column], float(predicted.sum() / held[column].sum())


def main() -> None:
    print(f"{'model':34} {'tp':>2} {'phase':8} {'mean':>6} {'median':>6} {'p90':>6} {'sum':>6}")
    for (name, degree), phases in read(sys.argv[1]).items():
        models: list[tuple[str, LatencyModel, str]] = [
            (name, samullm(name, degree), "seconds"),
        ]
        if name in PUBLISHED and degree == 1:
            label = f"roofline of {name}"
            models.append((label, roofline(label, PUBLISHED[name], A100_80G), "comp"))
        for label, model, column in models:
            for phase, rows in phases.items():
                each, whole = ratios(model, phase, rows, column)
                errors = np.abs(each - 1)
                figures = (errors.mean(), np.median(errors), np.percentile(errors, 90), whole)
                row = " ".join(f"{figure:6.3f}" for figure in figures)
                print(f"{label:34} {degree:2} {phase:8} {row}")


if __name__ == "__main__":
    main()
