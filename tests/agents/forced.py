"""A logits processor that makes a model do what the gate's scripts say."""

import json
import os
from pathlib import Path

from tests.agents.templates import wanted
from tests.clients.echo import Echo

SCRIPTS = "CAESURA_AGENTS_SCRIPTS"
"""The variable that names the file: the template, and its scripts by mark."""


class Task(Echo):
    """Forces the turns of the script that a prompt names."""

    def wanted(self, prompt: str) -> list[str]:
        given = json.loads(Path(os.environ[SCRIPTS]).read_text())
        return wanted(prompt, given["template"], given["scripts"])
