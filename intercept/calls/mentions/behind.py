"""What stands behind an opener: a call begins with JSON, with a tag, or with a name before either.

An answer that explains a format writes its opener without a call behind it.
"""

import re

MAX_HEAD_BYTES = 256
"""Length of the text that decides; a longer name is that of a call."""

_NAME = rb"[^\s<>(){}\[\]|`\"']+"
# A tag of a call's begin: `<function=`, `<arg_key>`, `<invoke `, `<|...` or `<` and U+FF5C.
_TAG = rb"<(?:[fa|\xef]|invoke\s)"
_BEGUN = re.compile(
    rb"\s*(?:```\w*\s*)?[{\[]"
    rb"|\s*(?:" + _NAME + rb"\s*)?" + _TAG + rb"|[\r\n]*" + _NAME + rb"(?:\s*[{\[(]|[\r\n]*</)"
)
# All beginnings of such texts.
_MAYBE = re.compile(
    rb"\s*(?:`{1,2}|```\w*\s*|(?:" + _NAME + rb"\s*)?(?:<(?:i(?:n(?:v(?:o(?:ke?)?)?)?)?)?)?)\Z"
)


def begins_call(behind: bytes) -> bool | None:
    """Return whether the text behind an opener begins a call; None if that is not known yet.

    The result for a text holds for all its continuations, unless it is None.
    """
    head = behind[:MAX_HEAD_BYTES]
    if _BEGUN.match(head):
        return True
    if _MAYBE.match(head):
        return None if len(head) < MAX_HEAD_BYTES else True
    return False
