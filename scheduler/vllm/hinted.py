"""Which tool a paused request waits for, and what its client said of that tool's pauses."""

import re
from collections.abc import Mapping, Sequence

from caesura.intercept.formats import CallFormat
from caesura.intercept.hint import PauseHint, slowest
from caesura.intercept.vocabulary import Vocabulary
from caesura.scheduler.vllm.calls import MOST_TOKENS


def hinted(
    tool: str | None,
    tokens: Sequence[int],
    vocabulary: Vocabulary,
    formats: Sequence[CallFormat],
    pauses: Mapping[str, PauseHint],
) -> tuple[str | None, PauseHint | None]:
    """Return the name under which the pause is learned, and the hint for it.

    `tool` is the one that was called last; of several calls in one turn, one that waits for a
    person decides how long the turn does.
    """
    if any(hint.person for hint in pauses.values()):
        data = b"".join(vocabulary.bytes_of(token) for token in tokens[-MOST_TOKENS:])
        text = data.decode(errors="replace")
        tool = slowest(_names_in(text, formats), pauses) or tool
    hint = pauses.get(tool) if tool is not None else None
    return (tool, None) if hint is None or tool is None else (hint.key(tool), hint)


def _names_in(text: str, formats: Sequence[CallFormat]) -> set[str]:
    """Return what stands where the formats write a name; some of it may be something else."""
    found = (match for form in formats if form.named for match in re.finditer(form.named, text))
    return {name for match in found for name in match.groups() if name}
