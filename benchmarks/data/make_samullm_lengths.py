"""Make planning/costs/samullm_lengths.json: quantiles of SamuLLM's output lengths (see SOURCE.md).

    python benchmarks/data/make_samullm_lengths.py OUTPUT_LENGTH_PDFS.jsonl.gz

The input has a model's distribution on requests of No Robots per line. Of each model the first one
is kept, as `LEVELS` equally likely lengths of at least one token, and the model's longest context.
"""

import gzip
import json
import sys
from pathlib import Path

import numpy as np

from caesura.planning.costs.distributions import weighted

FILE = Path(__file__).parent.parent.parent / "planning" / "costs" / "samullm_lengths.json"
LEVELS = 500


def quantiles(pairs: list[list[float]]) -> list[int]:
    found = weighted([(max(1.0, length), share) for length, share in pairs])
    return [int(tokens) for tokens in found.at((np.arange(LEVELS) + 0.5) / LEVELS)]


def main(path: str) -> None:
    models: dict[str, list[int]] = {}
    longest: dict[str, int] = {}
    with gzip.open(path, "rt") as file:
        for line in file:
            row = json.loads(line)
            # Files of the second kind count from index 0 and repeat most models.
            shift = 1 if row["source"].endswith("sampler_2.py") else 0
            if row["model"] not in models:
                models[row["model"]] = quantiles([[i + shift, p] for i, p in row["pdf_nonzero"]])
                longest[row["model"]] = row["n_bins"]
    rows = ",\n".join(f"  {json.dumps(model)}: {json.dumps(own)}" for model, own in models.items())
    FILE.write_text(f'{{"longest": {json.dumps(longest)},\n"quantiles": {{\n{rows}\n}}}}\n')
    print(f"wrote {FILE} of {len(models)} models")


if __name__ == "__main__":
    main(sys.argv[1])
