"""The simplest parts of a structural tag: texts, sequences and choices."""

from collections.abc import Sequence
from typing import Any

Part = dict[str, Any]


def constant(text: str) -> Part:
    """Return exactly this text."""
    return {"type": "const_string", "value": text}


def sequence(parts: Sequence[Part]) -> Part:
    """Return the parts one after the other."""
    return parts[0] if len(parts) == 1 else {"type": "sequence", "elements": list(parts)}


def either(parts: Sequence[Part]) -> Part:
    """Return any one of the parts."""
    return parts[0] if len(parts) == 1 else {"type": "or", "elements": list(parts)}


def optional(part: Part) -> Part:
    """Return the part or nothing."""
    return {"type": "optional", "content": part}
