"""What can be configured about people: `[people]`, and `[tools.ask_user]`."""

from pydantic import BaseModel, ConfigDict, Field

from caesura.tools.services import ToolSettings

DEADLINE_SECONDS = 3600.0
EXPECTED_SECONDS = 60.0


class PeopleSettings(BaseModel):
    """What `[people]` of a configuration may say."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    approval_deadline_seconds: float = Field(
        default=DEADLINE_SECONDS,
        gt=0,
        description="a call that nobody has approved by then is denied",
    )
    expected_seconds: float = Field(
        default=EXPECTED_SECONDS,
        gt=0,
        description="how long people take, before anybody has seen it",
    )
    max_items: int = Field(
        default=1000, ge=1, description="items kept; so many open ones, and no more are asked"
    )
    keep_days: float = Field(
        default=30.0, gt=0, description="an older item that is settled is forgotten"
    )


class Settings(ToolSettings):
    """What `[tools.ask_user]` of a configuration may say."""

    deadline_seconds: float = Field(
        default=DEADLINE_SECONDS, gt=0, description="how long an answer is waited for"
    )
    default: str | None = Field(
        default=None, min_length=1, description="the answer at the deadline; without it, an error"
    )
