"""An API key with its limits, and the file that lists keys."""

import base64
import hashlib
import json
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from caesura.runtime.errors import UsageError
from caesura.runtime.server.keys.rules import ROLES, Role

DEFAULT_WEIGHT = 1.0
MAX_NAME_CHARACTERS = 64
Reach = str | None
"""The tenant whose records may be used, or None for everybody's."""
UNDECODABLE = "surrogateescape"
"""How a key keeps bytes that are no UTF-8, as the environment does."""
_COUNTS = ("in_flight", "rpm", "tpm")
_SETTINGS = ("name", "weight", *_COUNTS, "role")


@dataclass(frozen=True, slots=True)
class Key:
    """One API key; 0 stands for no limit.

    `in_flight` bounds its requests under way, `rpm` those that begin in a minute, and `tpm` the
    tokens of prompts and answers in a minute. `weight` are its shares with `--fair tenant`.
    `role` None is the role that `keys_of` gives it.
    """

    secret: str = field(repr=False)
    name: str = ""
    weight: float = DEFAULT_WEIGHT
    in_flight: int = 0
    rpm: int = 0
    tpm: int = 0
    role: Role | None = None

    @property
    def tenant(self) -> str:
        """The digest by which its requests are accounted."""
        return tenant_of(self.secret)

    @property
    def who(self) -> str:
        """The name under which it stands in logs: its own, or the begin of its digest."""
        return self.name or f"key {self.tenant[:8]}"

    @property
    def is_limited(self) -> bool:
        """Whether it has a limit of its own."""
        return bool(self.in_flight or self.rpm or self.tpm)


def tenant_of(secret: str | None) -> str:
    """Return a digest of an API key, by which its requests are accounted; empty without a key."""
    if not secret:
        return ""
    return hashlib.sha256(b"caesura tenant " + encoded(secret)).hexdigest()[:32]


def encoded(secret: str) -> bytes:
    """Return the bytes of an API key, without white space around them."""
    return secret.encode(errors=UNDECODABLE).strip()


def salted(tenant: str, given: str | None) -> str:
    """Return the salt of a tenant's prefix cache, with the salt that the client chose, if any."""
    return hashlib.sha256(json.dumps(["salt", tenant, given]).encode()).hexdigest()[:32]


def sealed(tenant: str, text: str) -> str:
    """Return a text of a tenant's, encrypted and signed (AES-SIV, RFC 5297).

    Equal texts are sealed alike. Every server can read them for a request with the same API key.
    What was sealed for a request without a key can be read by everybody.
    """
    return base64.urlsafe_b64encode(_cipher(tenant).encrypt(text.encode(), None)).decode()


def unsealed(tenant: str, token: str) -> str | None:
    """Return the text of a token of `sealed`, or None for another tenant's or a changed one."""
    try:
        given = base64.b64decode(token.encode(), b"-_", validate=True)
        return _cipher(tenant).decrypt(given, None).decode()
    except (InvalidTag, ValueError):
        return None


def _cipher(tenant: str) -> AESSIV:
    return AESSIV(hashlib.sha512(b"caesura seal " + tenant.encode()).digest())


def read_keys(path: Path) -> list[Key]:
    """Return the keys of a file: one in a line, with its settings behind it.

    Raises `UsageError`, which never shows a key, for a file that cannot be read or holds no key,
    and for a line that is wrong.
    """
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--api-key-file {path}: {error}") from error
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    keys = [_key(line, number) for number, line in enumerate(filter(None, lines), start=1)]
    if not keys:
        raise UsageError(f"--api-key-file {path} holds no key: write one in a line of it")
    names = [key.name for key in keys if key.name]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"--api-key-file {path}: two keys have the name {twice!r}")
    return keys


def _key(line: str, number: int) -> Key:
    secret, *settings = line.split()
    given: dict[str, str] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if name not in _SETTINGS or not equals:
            known = ", ".join(f"{each}=" for each in _SETTINGS)
            raise UsageError(f"--api-key-file: behind key {number} there may only be {known}")
        given[name] = value
    if len(given.get("name", "")) > MAX_NAME_CHARACTERS:
        raise UsageError(
            f"--api-key-file: the name of key {number} has more than {MAX_NAME_CHARACTERS}"
            " characters"
        )
    counts = {name: _count(given[name], name, number) for name in _COUNTS if name in given}
    weight = _weight(given["weight"], number) if "weight" in given else DEFAULT_WEIGHT
    role = _role(given["role"], number) if "role" in given else None
    return Key(secret, given.get("name", ""), weight, role=role, **counts)


def _role(text: str, number: int) -> Role:
    if text not in ROLES:
        raise UsageError(
            f"--api-key-file: the role of key {number} must be one of {', '.join(ROLES)}, got"
            f" {text!r}"
        )
    return ROLES[text]


def _weight(text: str, number: int) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = 0.0
    if not 0 < weight < inf:
        raise UsageError(
            f"--api-key-file: the weight of key {number} must be a number above 0, got {text!r}"
        )
    return weight


def _count(text: str, name: str, number: int) -> int:
    if not text.isdecimal() or not 0 < int(text) < 2**53:
        raise UsageError(
            f"--api-key-file: {name} of key {number} must be a whole number above 0, got {text!r}"
        )
    return int(text)


def keys_of(given: "str | Collection[str | Key] | None") -> list[Key] | None:
    """Return the keys of a server with their roles, or None for a server without keys.

    A key without a role is the administrator's if it is the only one, and else a client's. Raises
    `UsageError` for an empty key.
    """
    if given is None:
        return None
    listed = [given] if isinstance(given, str) else list(given)
    keys = [each if isinstance(each, Key) else Key(each) for each in listed]
    blank = [number for number, key in enumerate(keys, start=1) if not key.secret.strip()]
    if blank or not keys:
        which = f"key {blank[0]} of {len(keys)} is blank" if blank else "got none"
        raise UsageError(f"api_key is empty, {which}: omit it to serve without a key")
    usual = Role.ADMIN if len(keys) == 1 else Role.CLIENT
    return [key if key.role is not None else replace(key, role=usual) for key in keys]


def weights_of(keys: Collection[Key] | None) -> dict[str, dict[str, float]]:
    """Return the scheduler's setting `weights`, by tenant, if a key has a weight of its own."""
    weights = {key.tenant: key.weight for key in keys or () if key.weight != DEFAULT_WEIGHT}
    return {"weights": weights} if weights else {}
