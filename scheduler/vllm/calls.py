"""Whether a stretch of decoded tokens holds a call, and of which tool: read off the tokens.

The engine has no other sign of a call: clients send none, and vLLM's tool parsers stand in the
API process.
"""

import re
from collections.abc import Sequence
from typing import Any

from caesura.intercept.formats import INLINE, CallFormat, detect, resolve
from caesura.intercept.vocabulary import Vocabulary

MOST_TOKENS = 4096
"""How far back a call is looked for; a call that is longer is one of an unknown tool."""


def formats_of(tokenizer: Any) -> tuple[CallFormat, ...]:
    """Return the formats in which the model writes whole turns of calls."""
    template = getattr(tokenizer, "chat_template", None)
    return resolve((name for name in detect(template) if name != INLINE), ())


def find_call(
    tokens: Sequence[int], vocabulary: Vocabulary, formats: Sequence[CallFormat]
) -> tuple[bool, str | None]:
    """Return whether the tokens hold a call, and the name of the last one's tool if it shows."""
    text = b"".join(vocabulary.bytes_of(token) for token in tokens[-MOST_TOKENS:])
    at, start, named = -1, -1, ""
    for form in formats:
        found = max((text.rfind(opener.encode()) for opener in form.opens), default=-1)
        if any(text.lstrip().startswith(anchor.encode()) for anchor in form.anchors):
            found = max(found, 0)
        if found > at:
            # Where a call is a line, the name stands in the one above.
            start = text.rfind(b"\n", 0, found) + 1 if form.body == "line" else found
            at, named = found, form.named
    if at < 0:
        return False, None
    return True, tool_named_in(text[start : at + 512], named)


def tool_named_in(call: bytes, named: str) -> str | None:
    """Find the tool's name in the text of a call, from its opener on; `named` is a pattern."""
    found = re.search(named, call.decode(errors="replace")) if named else None
    return next((name for name in found.groups() if name), None) if found else None
