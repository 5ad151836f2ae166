"""A mask over the texts of users, models and tools, before they are recorded or sent.

A text on which the mask fails is dropped, and a note stands in its place.
"""

import inspect
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from caesura.runtime.errors import UsageError

LOG = logging.getLogger(__name__)


class Mask:
    """A function from a text to the text that may be recorded, with what is done where it fails."""

    def __init__(self, function: Callable[[str], str], name: str) -> None:
        """Create it; raise `UsageError` for what is no function, or an asynchronous one."""
        if not callable(function) or inspect.iscoroutinefunction(function):
            kind = "an asynchronous one" if callable(function) else type(function).__name__
            raise UsageError(
                f"the mask {name} must be a plain function from a text to a text, got {kind}:"
                " name another one in [trace] mask"
            )
        self._function = function
        self._name = name
        self._has_warned = False

    def text(self, text: str) -> str:
        """Return a masked text, or a note in its place where the mask fails."""
        try:
            masked = self._function(text)
            if not isinstance(masked, str):
                raise TypeError(f"it returned {type(masked).__name__}, not a text")
        except Exception as error:
            self._warn(error)
            return f"[dropped: the mask {self._name} failed: {type(error).__name__}]"
        return masked.encode("utf-8", "replace").decode()

    def _warn(self, error: Exception) -> None:
        """Log the first failure, without its message: that may quote the text."""
        if not self._has_warned:
            self._has_warned = True
            told = error if isinstance(error, TypeError) and "it returned" in str(error) else ""
            LOG.warning(
                "the mask %s failed with %s%s: texts on which it fails are dropped from traces;"
                " this warning is not repeated",
                self._name,
                type(error).__name__,
                f" ({told})" if told else "",
            )


_current: list[Mask] = []


@contextmanager
def masking(mask: Mask | None) -> Iterator[None]:
    """Mask all texts that this process records or sends within the block; None changes nothing."""
    if mask is not None:
        _current.append(mask)
    try:
        yield
    finally:
        if mask is not None:
            _current.remove(mask)


def masked(text: str) -> str:
    """Return a text as the masks of this process leave it."""
    for mask in _current:
        text = mask.text(text)
    return text
