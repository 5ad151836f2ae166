"""Make the small samples of published arrival traces (see SOURCE.md).

    python benchmarks/data/make_arrivals.py AZURE_CODE AZURE_CONV MOONCAKE SERVEGEN

The inputs are, gzipped or not, AzureLLMInferenceTrace_code.csv and AzureLLMInferenceTrace_conv.csv
(AzurePublicDataset), conversation_trace.jsonl (Mooncake, FAST25-release) and the rate windows of
ServeGen's reason/deepseek-r1, the rows of all its clients under one header: `client`,
`window_start_s`, `rate_rps`, `cv`, `pattern`, `param1`, `param2`. What is not about arrivals is
left out, and the same input gives the same bytes.
"""

import csv
import gzip
import io
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from caesura.simulator.workload.arrivals import COLUMNS
from caesura.simulator.workload.reading import csv_rows, json_lines, lines

AZURE_REQUESTS = 8000
"""The first ones of each of Azure's traces."""


def azure(path: Path) -> Iterator[list[str]]:
    yield ["TIMESTAMP"]
    for index, (_, row) in enumerate(csv_rows(path, ["TIMESTAMP"])):
        if index == AZURE_REQUESTS:
            return
        yield [row["TIMESTAMP"][:-4]]  # to the millisecond


def mooncake(path: Path) -> Iterator[str]:
    for _, row in json_lines(path):
        yield json.dumps({"timestamp": row["timestamp"]})


def servegen(path: Path) -> Iterator[list[str]]:
    """Windows in which a client sends nothing are left out; that is what they say."""
    yield list(COLUMNS)
    for _, row in csv_rows(path, COLUMNS):
        if float(row["rate_rps"]):
            numbers = {key: f"{float(row[key]):.4g}" for key in ("rate_rps", "param1")}
            yield [(row | numbers)[column] for column in COLUMNS]


def table(rows: Iterable[list[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def main() -> None:
    """Read the inputs named on the command line and write the samples beside this file."""
    code, conversation, conversations, clients = map(Path, sys.argv[1:])
    samples = {
        "azure_code_2023.csv.gz": table(azure(code)),
        "azure_conv_2023.csv.gz": table(azure(conversation)),
        "mooncake_conversation.jsonl.gz": "".join(f"{line}\n" for line in mooncake(conversations)),
        "servegen_deepseek_r1.csv.gz": table(servegen(clients)),
    }
    for name, text in samples.items():
        target = Path(__file__).with_name(name)
        target.write_bytes(gzip.compress(text.encode(), mtime=0))
        found = sum(1 for _ in lines(target))
        print(f"{name}: {found} lines, {len(text)} bytes, compressed {target.stat().st_size}")


if __name__ == "__main__":
    main()
