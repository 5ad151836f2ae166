"""The tool `environment`, made from its settings."""

import itertools
import json
import subprocess
import sys
import tempfile
from typing import Any

from caesura.tools.context import current
from caesura.tools.environment.prewarmed import MODULE, Prewarmed
from caesura.tools.environment.settings import Settings
from caesura.tools.environment.world import World
from caesura.tools.services import Services, SetupError, require
from caesura.tools.tool import Tool
from caesura.tools.worker.environment import worker_environment

TIMEOUT_SECONDS = 60.0
EXPECTED_SECONDS = 0.1
CHECK_SECONDS = 60.0
DESCRIPTION = (
    'Act in a text world. "reset" starts a new game and says the task; '
    "each observation says what you can do."
)
PARAMETERS = {
    "type": "object",
    "properties": {"action": {"type": "string", "description": 'one action, or "reset"'}},
    "required": ["action"],
    "additionalProperties": False,
}


def make(settings: Settings, services: Services) -> Tool:
    """Return the tool `environment`.

    Raises SetupError for a missing package, or for a Gymnasium environment that fails to start.
    """
    extra = "environment" if settings.backend == "gymnasium" else "alfworld"
    require(settings.backend, extra, "environment")
    data = services.data / "environment"
    options = {**settings.model_dump(mode="json"), "data": str(data)}
    if settings.backend == "gymnasium":
        _check(options)
    variables = {
        # ALFWorld creates this directory at import, and fails if it cannot. We keep nothing in it:
        # games are stored in `data`, and drawn again where that is not writable.
        "ALFWORLD_DATA": tempfile.gettempdir(),
        "PYTHONHASHSEED": "0",  # a room's description lists things in an order that depends on it
    }
    pool = Prewarmed(options, variables, most=settings.max_environments, spares=settings.spares)
    services.at_end(pool.aclose)
    count = itertools.count()

    async def begin() -> World:
        return World(pool, lambda: next(count) % settings.games, settings.max_steps)

    async def environment(action: str) -> str:
        world = await current().scope.keep("environment", begin, World.aclose)
        return await world.act(action)

    return Tool.from_schema(
        "environment",
        DESCRIPTION,
        PARAMETERS,
        environment,
        timeout_seconds=TIMEOUT_SECONDS,
        expected_seconds=EXPECTED_SECONDS,
    )


def _check(options: dict[str, Any]) -> None:
    """Raise SetupError unless a separate process can make the environment."""
    code = f"import json, sys; from {MODULE} import prepare; prepare(json.load(sys.stdin))"
    command = [sys.executable, "-P", "-c", code]
    try:
        ended = subprocess.run(
            command,
            input=json.dumps(options),
            env=worker_environment(),
            capture_output=True,
            text=True,
            timeout=CHECK_SECONDS,
        )
    except subprocess.TimeoutExpired:
        reason = f"making it takes more than {CHECK_SECONDS:g} seconds"
    else:
        if ended.returncode == 0:
            return
        lines = ended.stderr.strip().splitlines()
        reason = lines[-1] if lines else f"its process ended ({ended.returncode})"
    raise SetupError(f"[tools.environment]: {options['id']!r} cannot be used: {reason}")
