"""Conformance suites, which bring requests and judgements of their own."""

import json
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.clients.libraries import NODE, PYTHON, environment
from tests.clients.servers import MODEL

OUTCOMES = ("passed", "failed", "skipped")
SECONDS = "300"
"""How long a suite waits for an answer; a loaded machine is slow."""
Found = Iterable[tuple[str, str]]
"""Each test's name and outcome."""


@dataclass(frozen=True)
class Suite:
    """A suite: the library that has it, its format or profile, and what runs it on a server."""

    library: str
    form: str
    run: Callable[[str], Found]

    def row(self, server: str, url: str) -> list[str]:
        """Run the suite against a server; return its row of the page."""
        by_outcome: dict[str, list[str]] = {outcome: [] for outcome in OUTCOMES}
        for test, outcome in self.run(url):
            by_outcome[outcome].append(test)
        counts = [str(len(by_outcome[outcome])) for outcome in OUTCOMES]
        return [self.library, self.form, server, *counts, ", ".join(by_outcome["failed"])]


def _comply(form: str, url: str) -> Found:
    command = [str(PYTHON / "llm-comply"), "run", "--format", form, "--json"]
    options = ("--base-url", f"{url}/v1", "--api-key", "none", "--model", MODEL)
    report = _report([*command, *options, "--timeout", SECONDS])
    return [(each["id"], each["status"].lower()) for each in report["results"]]


def _canary(profile: str, url: str) -> Found:
    """Run compatcanary; what it only warns of counts as failed."""
    command = [str(NODE / "node_modules" / ".bin" / "compatcanary"), "scan", "--profile", profile]
    options = ("--base-url", f"{url}/v1", "--model", MODEL, "--timeout", SECONDS)
    report = _report([*command, *options, "--format", "json", "--fail-on", "never"])
    return [
        (each["id"], "passed" if each["status"] == "pass" else "failed")
        for each in report["results"]
    ]


def _report(command: list[str]) -> dict[str, Any]:
    ended = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    begin = ended.stdout.find("{")
    if begin < 0:
        raise RuntimeError(
            f"{' '.join(command)} printed no report: {ended.stdout[-500:]}{ended.stderr[-500:]}"
        )
    found: dict[str, Any] = json.loads(ended.stdout[begin:])
    return found


SUITES = (
    *(
        Suite("llm-comply", form, partial(_comply, form))
        for form in ("open-responses", "openai-chat", "anthropic")
    ),
    *(Suite("compatcanary", form, partial(_canary, form)) for form in ("chat", "modern")),
)
