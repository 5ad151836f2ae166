"""Settings of `[people]` and `[tools.ask_user]`."""

from pydantic import BaseModel, ConfigDict, Field

from caesura.tools.services import ToolSettings

DEADLINE_SECONDS = 3600.0
EXPECTED_SECONDS = 60.0


class PeopleSettings(BaseModel):
    """Settings of `[people]`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    approval_deadline_seconds: float = Field(
        default=DEADLINE_SECONDS,
        gt=0,
        description="a call without an approval by then is denied",
    )
    expected_seconds: float = Field(
        default=EXPECTED_SECONDS,
        gt=0,
        description="expected time to an answer, before one was measured",
    )
    max_items: int = Field(
        default=1000, ge=1, description="items kept; new questions fail once all are open"
    )
    max_items_per_key: int = Field(
        default=500,
        ge=1,
        description="open at once for the clients of one API key, so that other keys can ask",
    )
    keep_days: float = Field(
        default=30.0, gt=0, description="settled items are deleted at this age"
    )


class Settings(ToolSettings):
    """Settings of `[tools.ask_user]`."""

    deadline_seconds: float = Field(
        default=DEADLINE_SECONDS, gt=0, description="how long to wait for an answer"
    )
    default: str | None = Field(
        default=None, min_length=1, description="the answer at the deadline; without it, an error"
    )
