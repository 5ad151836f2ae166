"""The tool `environment`, made from its settings, those of `[tools.environment]`."""

import itertools
import json
import subprocess
import sys
import tempfile
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from caesura.processes.worker import worker_environment
from caesura.tools.context import current
from caesura.tools.environment.world import MODULE, Prewarmed, World
from caesura.tools.services import Services, SetupError, ToolSettings, require
from caesura.tools.tool import Tool

TaskType = Literal[
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
]
TASK_TYPES: tuple[TaskType, ...] = TaskType.__args__  # type: ignore[attr-defined]


class Settings(ToolSettings):
    """Which games there are, and how many may be played at the same time."""

    backend: Literal["alfworld", "gymnasium"] = Field(
        "alfworld", description="the back end of the games"
    )
    seed: int = Field(0, ge=0, description="equal seeds give equal games, in the same order")
    games: int = Field(100, ge=1, description="number of different games, which then repeat")
    max_steps: int = Field(50, ge=1, description="actions after which a game is lost")
    max_environments: int = Field(
        4, ge=1, le=256, description="sessions that play at the same time"
    )
    spares: int = Field(1, ge=0, le=8, description="processes kept ready for the next sessions")
    task_types: tuple[TaskType, ...] = Field(
        TASK_TYPES, min_length=1, description="ALFWorld: the kinds of tasks to draw from"
    )
    max_places: int = Field(
        8, ge=4, le=60, description="ALFWorld: maximum number of places in a room"
    )
    id: str = Field(
        "", description='Gymnasium: a registered id, "module:Id" or "module:Class" of an Env'
    )
    kwargs: dict[str, Any] = Field({}, description="Gymnasium: arguments of the environment")
    actions: tuple[str, ...] = Field(
        (), description="Gymnasium: names of the actions 0, 1, ... of a Discrete space"
    )
    task: str = Field("", description="Gymnasium: the task as told to the model")
    won_above: float | None = Field(
        None, description="Gymnasium: a game is won if its last reward is above this"
    )

    @model_validator(mode="after")
    def _id_belongs_to_gymnasium(self) -> Self:
        if (self.backend == "gymnasium") != bool(self.id):
            raise ValueError('backend "gymnasium" and id must be set together or not at all')
        return self


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
