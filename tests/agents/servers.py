"""The two servers of the gate: `caesura serve` with its defaults, and stock `vllm serve`."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from tests.agents.forced import SCRIPTS
from tests.agents.model import WINDOW
from tests.agents.templates import Script, Template, as_json
from tests.clients.servers import started

MODEL = "tiny"
SHELLS = ("caesura serve", "vllm serve")
_ENGINE = (
    *("--max-model-len", str(WINDOW), "--logits-processors", "tests.agents.forced:Task"),
    *("--dtype", "float32", "--kv-cache-memory-bytes", str(256 << 20)),
    *("--max-num-batched-tokens", "4096"),
)


def arguments(shell: str, template: Template, model: Path) -> Sequence[str]:
    """Return the arguments of Python that start a server of a model."""
    named = ("--model", str(model), "--served-model-name", MODEL, "--port", "{port}")
    if shell == "caesura serve":
        return ("-m", "caesura", "serve", *named, "--no-calibrate", "--no-trace", "--", *_ENGINE)
    calls, thinking = template.parsers
    return (
        *("-m", "vllm.entrypoints.openai.api_server", *named, "--host", "127.0.0.1", *_ENGINE),
        *("--enforce-eager", "--block-size", "32", "--enable-prompt-tokens-details"),
        *("--enable-auto-tool-choice", "--tool-call-parser", calls),
        *("--reasoning-parser", thinking),
    )


@contextmanager
def serving(
    shell: str, template: Template, model: Path, scripts: Mapping[str, Script], folder: Path
) -> Iterator[str]:
    """Start a server whose model follows these scripts, by mark; yield its address."""
    file = folder / "scripts.json"
    told = {mark: asdict(script) for mark, script in scripts.items()}
    file.write_text(json.dumps({"template": as_json(template), "scripts": told}))
    with started(shell, arguments(shell, template, model), folder, {SCRIPTS: str(file)}) as url:
        yield url
