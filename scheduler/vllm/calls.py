"""Whether a stretch of decoded tokens holds a call, and of which tool: read off the tokens.

The engine has no other sign of a call: clients send none, and vLLM's tool parsers stand in the
API process.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

from caesura.intercept.formats import INLINE, CallFormat, detect, resolve
from caesura.intercept.vocabulary import Vocabulary

MOST_TOKENS = 4096
"""How far back a call is looked for; a call that is longer is one of an unknown tool."""

_NAMED = re.compile(rb'"name"\s*:\s*"([^"\\]{1,64})"')
_WRITTEN = re.compile(rb"[\[=]?([A-Za-z_][A-Za-z0-9_.-]{0,63})\s*[({>\[]")


def formats_of(tokenizer: Any) -> tuple[CallFormat, ...]:
    """Return the formats in which the model writes whole turns of calls."""
    template = getattr(tokenizer, "chat_template", None) or ""
    if not isinstance(template, str):
        template = json.dumps(template)
    return resolve((name for name in detect(template) if name != INLINE), ())


def find_call(
    tokens: Sequence[int], vocabulary: Vocabulary, formats: Sequence[CallFormat]
) -> tuple[bool, str | None]:
    """Return whether the tokens hold a call, and the name of the last one's tool if it shows."""
    text = b"".join(vocabulary.bytes_of(token) for token in tokens[-MOST_TOKENS:])
    at = -1
    for form in formats:
        for opener in form.opens:
            data = opener.encode()
            found = text.rfind(data)
            if form.anchored:
                found = 0 if text.lstrip().startswith(data) else -1
            at = max(at, found)
    if at < 0:
        return False, None
    return True, tool_named_in(text[at : at + 512])


def tool_named_in(call: bytes) -> str | None:
    """Find the tool's name in the text of a call, from its opener on."""
    found = _NAMED.search(call) or _WRITTEN.search(call)
    return found[1].decode(errors="replace") if found is not None else None
