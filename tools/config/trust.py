"""Which configurations of other directories the user allows to start programs.

A `caesura.toml` in the current directory may come with somebody else's repository. It can name
programs to start, and put variables of the user's environment into what these get.
"""

import hashlib
import json
import os
from pathlib import Path

from caesura.tools.config.paths import user_configuration
from caesura.tools.services import SetupError

ALLOW_ALL = "CAESURA_TRUST_CONFIG"
"""Set to 1, this environment variable allows every configuration."""


def digest_of(parts: object) -> str:
    """Return the digest of what a configuration holds."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def is_trusted(path: Path, digest: str) -> bool:
    """Return whether the user has allowed the file at a path, as it is now."""
    return os.environ.get(ALLOW_ALL) == "1" or _known().get(str(path)) == digest


def trust(path: Path, digest: str) -> None:
    """Allow the file at a path until it changes. Raises `SetupError`."""
    place = _place()
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        part = place.with_name(f"{place.name}.{os.getpid()}")
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump({**_known(), str(path): digest}, file, indent=1)
        part.replace(place)
    except OSError as error:
        raise SetupError(f"{place} cannot be written: {error.strerror}") from error


def _known() -> dict[str, str]:
    """Return the digests of allowed files, by path; a broken file allows none."""
    try:
        read = json.loads(_place().read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(read, dict):
        return {}
    return {str(path): each for path, each in read.items() if isinstance(each, str)}


def _place() -> Path:
    return user_configuration().with_name("trusted.json")
