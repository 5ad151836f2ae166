"""Stand-ins of engines as processes."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from caesura.planning.run.host import Replica

ENGINE = Path(__file__).with_name("engine_process.py")


def command(folder: Path, kind: str = "serve") -> Callable[[Replica], Sequence[str]]:
    return lambda one: [sys.executable, str(ENGINE), one.name, kind, str(folder)]
