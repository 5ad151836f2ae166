"""Questions to people, and calls that people approve before they run.

A question is kept in a file until a person answers it: in the terminal, through a callback of the
program, or by its id over the endpoint.
"""

from caesura.tools.people.asking import make_ask_user, person_deadline, with_approval
from caesura.tools.people.desk import Callback
from caesura.tools.people.pending import (
    BadAnswer,
    NoAnswer,
    NoSuchItem,
    NotPending,
    Pending,
    PeopleError,
)
from caesura.tools.people.people import People, PeopleSettings, Settings
from caesura.tools.services import Services
from caesura.tools.tool import Tool

__all__ = [
    "BadAnswer",
    "Callback",
    "NoAnswer",
    "NoSuchItem",
    "NotPending",
    "Pending",
    "People",
    "PeopleError",
    "PeopleSettings",
    "Settings",
    "make",
    "make_ask_user",
    "people_of",
    "person_deadline",
    "with_approval",
]

FILE = "people.sqlite"


def people_of(services: Services, settings: PeopleSettings | None = None) -> People:
    """Return the `People` of these services; `settings` count at the first call only."""
    people = services.shared.get("people")
    if not isinstance(people, People):
        people = services.shared["people"] = People(services.data / FILE, settings)
        services.at_end(people.aclose)
    return people


def make(settings: Settings, services: Services) -> Tool:
    """Return the tool `ask_user`, for `Toolset`."""
    return make_ask_user(people_of(services), settings)
