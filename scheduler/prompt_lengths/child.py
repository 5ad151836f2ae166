"""The process that predicts lengths: `python -m caesura.scheduler.prompt_lengths.child DIR`.

It reads lines `{"id": N, "prompt": TEXT}` and answers each with
`{"id": N, "tokens": [...]}`, equally likely lengths, ascending. Its first line is
`{"ready": true}`, or `{"error": TEXT}` if the predictor cannot be loaded. Prompts that wait are
predicted together. It ends when its input closes or its parent is gone.
"""

import json
import os
import queue
import select
import signal
import sys
import threading
from pathlib import Path
from typing import Any, BinaryIO

MAX_BATCH = 32
NICENESS = 5
"""Decoding goes before predicting: this process gets a third of a contended processor."""

WATCH_SECONDS = 1.0
"""How often a waiting process looks whether its parent is still there."""


def main() -> None:
    """Load the predictor, and answer until the input closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the engine decides when this process ends
    os.nice(NICENESS)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no answer
    waiting: queue.Queue[bytes] = queue.Queue()
    threading.Thread(target=_read, args=(waiting, os.getppid()), daemon=True).start()
    try:
        from caesura.scheduler.prompt_lengths.predictor import load_predictor

        predictor = load_predictor(Path(sys.argv[1]))
        predictor.predict(["the first prediction is slower than all others"])
    except Exception as error:
        _send(answers, [{"error": f"{error}"}])
        sys.exit(1)
    _send(answers, [{"ready": True}])
    while True:
        batch = [json.loads(line) for line in _batch(waiting)]
        lengths = predictor.predict([asked["prompt"] for asked in batch])
        rounded = lengths.quantiles.round(1).tolist()
        _send(
            answers,
            [
                {"id": asked["id"], "tokens": tokens}
                for asked, tokens in zip(batch, rounded, strict=True)
            ],
        )


def _read(waiting: "queue.Queue[bytes]", parent: int) -> None:
    """Queue the lines of the input; end the process with the input or with the parent."""
    rest = b""
    while os.getppid() == parent:
        ready, _, _ = select.select([0], [], [], WATCH_SECONDS)
        if not ready:
            continue
        piece = os.read(0, 2**16)
        if not piece:
            break
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            waiting.put(line)
    os._exit(0)


def _batch(waiting: "queue.Queue[bytes]") -> list[bytes]:
    """Return the lines that wait, at least one and at most `MAX_BATCH`."""
    lines = [waiting.get()]
    while len(lines) < MAX_BATCH:
        try:
            lines.append(waiting.get_nowait())
        except queue.Empty:
            break
    return lines


def _send(out: BinaryIO, answers: list[dict[str, Any]]) -> None:
    out.write(b"".join(json.dumps(answer).encode() + b"\n" for answer in answers))
    out.flush()


if __name__ == "__main__":
    main()
