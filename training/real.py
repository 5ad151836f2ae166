"""The built-in tools' own definitions, which a client sees, in place of the generated ones."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path

from heldout import Scenario
from tasks.conversation import Conversation
from tasks.toolset import BUILT_IN, Tool

from caesura.tools.artifacts import ArtifactStore
from caesura.tools.config.toolset import Toolset
from caesura.tools.services import Services

# What a tool cannot be made without; nothing is called.
SETTINGS = {"generate_image": {"backend": "endpoint", "url": "http://127.0.0.1:9/v1"}}


def definitions() -> dict[str, Tool]:
    """Return the definitions by name. Raises SetupError where a tool's package is missing."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        services = Services(ArtifactStore(folder), folder, allow_private=True)
        tools = Toolset(services, SETTINGS)
        return {name: tools.make(name).spec() for name in sorted(BUILT_IN)}


def with_real(scenario: Scenario, real: dict[str, Tool]) -> Scenario:
    """Return the scenario with the tools' own definitions."""
    talk = scenario.talk
    tools = [real.get(tool["function"]["name"], tool) for tool in talk.tools]
    return dataclasses.replace(scenario, talk=Conversation(talk.system, tools, talk.exchanges))
