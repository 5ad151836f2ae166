"""Settings of `[tools.environment]`."""

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from caesura.tools.services import ToolSettings

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
