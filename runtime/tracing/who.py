"""Who asked for a run: what its span says of that, and so its recording."""

import hashlib
from dataclasses import dataclass, field
from typing import Literal

from caesura.runtime.recording import conventions as names

UserForm = Literal["plain", "digest", "off"]
"""How users are named: as the requests name them, by a digest, or not at all."""
_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Who:
    """Who asked for a run. Each text may be empty.

    `tenant` is the name of an API key, never the key. `session` and `parent` are names that the
    client chose, and `x_request_id` is the `X-Request-Id` of the answer. `user` is as `user_of`
    returns it.
    """

    tenant: str = ""
    user: str = ""
    session: str = ""
    parent: str = ""
    x_request_id: str = ""
    owner: str = field(default="", repr=False)
    """Tells those apart whose conversations must not be compared. It is in no span."""

    def attributes(self) -> dict[str, str]:
        """Return the attributes of the run's span, without those that are empty."""
        told = {
            names.TENANT: self.tenant,
            names.USER_ID: self.user,
            names.SESSION_ID: self.session,
            names.SESSION_PARENT: self.parent,
            names.X_REQUEST_ID: self.x_request_id,
        }
        return {name: text for name, text in told.items() if text}


NOBODY = Who()


@dataclass(frozen=True, slots=True)
class RunIds:
    """The ids of a run: that of its answer, and that of its first request in the engine."""

    response: str | None = None
    request: str | None = None


NO_IDS = RunIds()


def user_of(user: str | None, form: UserForm) -> str:
    """Return a user as records name it: equal users have equal digests."""
    if not user or form == "off":
        return ""
    if form == "plain":
        return user[:256].encode("utf-8", "replace").decode()
    digest = hashlib.sha256(b"caesura user " + user.encode("utf-8", "replace"))
    return digest.hexdigest()[:_DIGITS]
