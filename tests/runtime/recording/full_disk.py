"""Records while files may not grow, and when they may again; prints what became of it as JSON.

A program of its own, since the limit holds for a whole process:
`python -m tests.runtime.recording.full_disk FILE`.
"""

import json
import logging
import resource
import signal
import sys
import time
from pathlib import Path

from caesura.runtime.recording.recorder import Recorder
from caesura.runtime.recording.storage import Store
from tests.kit.waiting import wait_until

LIMIT = 300_000


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    recorder = Recorder(Store(Path(sys.argv[1])), retry_seconds=0.2)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, hard))
    added = longest = 0
    while not recorder.dropped:
        began = time.perf_counter()
        recorder.add([{"kind": "steps", "n": added + n, "fill": "x" * 500} for n in range(20)])
        longest = max(longest, int((time.perf_counter() - began) * 1e6))
        added += 20
        time.sleep(0.0005)
    during = recorder.written
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    wait_until(lambda: recorder.written > during)
    recorder.add([{"kind": "steps", "n": added}])
    recorder.close()
    told = {"added": added + 1, "written": recorder.written, "dropped": recorder.dropped}
    print(json.dumps(told | {"longest_us": longest, "recording": recorder.recording}))


if __name__ == "__main__":
    main()
