"""Make simulator/latency/samullm.json, and a sample of what it is tested on (see SOURCE.md).

    python benchmarks/data/make_samullm_fits.py VLLM_ITER_LATENCY.csv.gz

The input has one timed vLLM iteration per line. For each model and tensor parallel degree the
parts of an iteration (comp, prep, samp) are fitted by t = a[B] x + b[B], a and b linear in B
between knots, by least squares of the error relative to the iteration's time, with weights that
keep hiccups out (Huber's, iterated). Iterations with some values of B are held out: all that is
tested on has a B that the fit has not seen. `prep` is what is neither the model's execution nor
sampling, so that the parts sum to the iteration.
"""

import csv
import gzip
import json
import random
import sys
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Rows = dict[str, Array]

HERE = Path(__file__).parent
FITS = HERE.parent.parent / "simulator" / "latency" / "samullm.json"
SAMPLE = HERE / "samullm_iterations.csv.gz"

KNOTS = np.array([1, 4, 16, 64, 128, 256, 512], np.float64)
HELD_OUT = (5, 3)  # B % 5 == 3; none of them is a knot
TUNING = 1.5  # residuals beyond so many medians of them weigh less
ROUNDS = 10
SAMPLED = 8  # iterations of each phase, model and degree

# Models whose query heads share KV heads: bytes of a token's KV, from their config.json. Of the
# others these are 2 x 2 L h, which the count of FLOPs holds.
SHARED_KV = {"chatglm3-6b": 2 * 2 * 28 * 2 * 128, "Mixtral-8x7B-v0.1": 2 * 2 * 32 * 8 * 128}

COLUMNS = {
    "requests": "num_seqs",
    "total": "total_len",
    "longest": "max_seqlen",
    "flops": "tflops",
    "seconds": "iter_latency_s",
    "comp": "exec_s",
    "samp": "sample_s",
}
Key = tuple[str, int]


def read(path: str) -> dict[Key, dict[str, Rows]]:
    """Return the columns of each model, degree and phase; a log without prefills is left out."""
    found: dict[Key, dict[str, list[list[float]]]] = defaultdict(lambda: defaultdict(list))
    with gzip.open(path, "rt") as file:
        for line in csv.DictReader(file):
            phase = "prefill" if line["is_prompt"] == "1" else "decode"
            values = [float(line[column]) for column in COLUMNS.values()]
            found[line["model"], int(line["tp"])][phase].append(values)
    return {
        key: {
            phase: dict(zip(COLUMNS, np.array(lines).T, strict=True))
            for phase, lines in phases.items()
        }
        for key, phases in sorted(found.items())
        if len(phases["prefill"]) > len(KNOTS) * 4
    }


def counted(phases: dict[str, Rows]) -> tuple[float, float]:
    """Return the FLOPs (10^12) per token and per pair that the authors counted; they are exact."""
    rows = phases["decode"]
    columns = np.stack([rows["requests"], rows["total"]], axis=1)
    per_token, per_pair = np.linalg.lstsq(columns, rows["flops"], rcond=None)[0]
    return float(per_token), float(per_pair)


def parts(phase: str, rows: Rows, per_token: float) -> Iterator[tuple[str, Array, Array]]:
    """Yield each part's name, x and seconds."""
    requests, total = rows["requests"], rows["total"]
    padded = requests * rows["longest"]
    yield "comp", rows["flops"] - per_token * requests, rows["comp"]
    yield "prep", padded, rows["seconds"] - rows["comp"] - rows["samp"]
    yield "samp", total, rows["samp"]


def design(requests: Array, x: Array) -> Array:
    """Return the columns that a fit's terms multiply: what b[B] grows by, then a[B], by knot."""
    steps = [np.ones_like(requests)]
    for low, high in pairwise(KNOTS):
        steps.append(np.clip((requests - low) / (high - low), 0, 1))
    slopes = [np.interp(requests, KNOTS, row) * x for row in np.eye(len(KNOTS))]
    return np.stack([*steps, *slopes], axis=1)


def least_squares(columns: Array, wanted: Array) -> Array:
    """Return non-negative terms: those that come out below zero are left out, one by one."""
    scales = np.maximum(np.abs(columns).max(axis=0), 1e-300)
    chosen = list(range(columns.shape[1]))
    while True:
        terms = np.linalg.lstsq(columns[:, chosen] / scales[chosen], wanted, rcond=None)[0]
        if (terms >= 0).all():
            break
        del chosen[int(terms.argmin())]
    result = np.zeros(columns.shape[1])
    result[chosen] = terms / scales[chosen]
    return result


def fit(columns: Array, seconds: Array, whole: Array) -> Array:
    """Fit a part's seconds; errors count relative to the `whole` iteration."""
    weights = np.ones_like(seconds)
    for _ in range(ROUNDS):
        by = weights / whole
        terms = least_squares(columns * by[:, None], seconds * by)
        errors = np.abs(columns @ terms - seconds) / whole
        most = TUNING * max(float(np.median(errors)), 1e-6)
        weights = np.sqrt(np.minimum(1.0, most / np.maximum(errors, 1e-12)))
    return terms


def fit_phase(phase: str, rows: Rows, per_token: float) -> tuple[dict[str, Any], float]:
    """Return the coefficients in microseconds and the mean relative error on what is held out."""
    held = held_out(rows)
    predicted = np.zeros_like(rows["seconds"])
    found: dict[str, Any] = {}
    for name, x, seconds in parts(phase, rows, per_token):
        columns = design(rows["requests"], x)
        terms = fit(columns[~held], seconds[~held], rows["seconds"][~held])
        predicted += columns @ terms
        bases, slopes = np.cumsum(terms[: len(KNOTS)]), terms[len(KNOTS) :]
        found[name] = [rounded(1e6 * bases), rounded(1e6 * slopes)]
    errors = np.abs(predicted / rows["seconds"] - 1)
    return found, float(errors[held].mean())


def held_out(rows: Rows) -> NDArray[np.bool_]:
    every, rest = HELD_OUT
    return rows["requests"] % every == rest


def rounded(values: Array) -> list[float]:
    return [float(f"{value:.4g}") for value in values]


def kv_bytes(model: str, degree: int, pairs: dict[Key, float]) -> int:
    """Return the bytes of a token's KV on one device."""
    # Some logs count the FLOPs of all devices, the others those of one.
    most = max(value for (name, _), value in pairs.items() if name == model)
    return round(SHARED_KV.get(model, 2e12 * most) / degree)


def fit_all(logs: dict[Key, dict[str, Rows]]) -> dict[str, Any]:
    flops = {key: counted(phases) for key, phases in logs.items()}
    pairs = {key: per_pair for key, (_, per_pair) in flops.items()}
    found: dict[str, Any] = defaultdict(dict)
    for (model, degree), phases in logs.items():
        per_token, per_pair = flops[model, degree]
        prefill, prefill_error = fit_phase("prefill", phases["prefill"], per_token)
        decode, decode_error = fit_phase("decode", phases["decode"], per_token)
        found[model][str(degree)] = {
            "per_token": float(f"{per_token:.5g}"),
            "per_pair": float(f"{per_pair:.5g}"),
            "kv_tokens": int(phases["decode"]["total"].max()),
            "kv_bytes": kv_bytes(model, degree, pairs),
            "errors": [round(prefill_error, 4), round(decode_error, 4)],
            "prefill": prefill,
            "decode": decode,
        }
        print(f"{model} tp{degree}: {prefill_error:.3f} prefill, {decode_error:.3f} decode")
    return found


def sample(logs: dict[Key, dict[str, Rows]]) -> Iterator[list[Any]]:
    """Yield some iterations that were held out, drawn with a fixed seed."""
    rng = random.Random(0)
    for (model, degree), phases in logs.items():
        for phase in ("prefill", "decode"):
            rows = phases[phase]
            for index in sorted(rng.sample(list(np.flatnonzero(held_out(rows))), SAMPLED)):
                sizes = [int(rows[name][index]) for name in ("requests", "total", "longest")]
                times = [float(rows[name][index]) for name in ("seconds", "comp")]
                yield [model, degree, phase, *sizes, *times]


def main() -> None:
    """Read the CSV named on the command line; write the fits and the sample."""
    logs = read(sys.argv[1])
    data = {
        "about": "fits of SamuLLM's latency model; made by benchmarks/data/make_samullm_fits.py",
        "source": "github.com/puddingfjz/vllm, de1677dcb7e2a216172aedf3262b19b106f17786",
        "licence": "Apache-2.0",
        "knots": [int(knot) for knot in KNOTS],
        "fits": fit_all(logs),
    }
    FITS.write_text(json.dumps(data, separators=(",", ":")).replace('},"', '},\n"') + "\n")
    header = ["model", "tp", "phase", "requests", "total", "longest", "seconds", "comp"]
    rows = [header, *sample(logs)]
    text = "".join(",".join(map(str, row)) + "\n" for row in rows)
    with SAMPLE.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, 0) as packed:
        packed.write(text.encode())


if __name__ == "__main__":
    main()
