"""What a row of the table of call formats says."""

from dataclasses import dataclass
from typing import Literal

KEY = r'\{\s*"name"\s*:\s*"([^"\\]{1,64})"'
"""A pattern for the begin of a JSON object that names its tool; the group is the name."""

NAME = r"([^\s<>(){}\[\]|]{1,64})"
"""A pattern for a tool's name before a tag or a bracket."""


@dataclass(frozen=True, slots=True)
class CallFormat:
    """One way of writing calls.

    `opens`: texts that open a call. `closes`: the text that closes a call; None where its JSON
    closes it, or where the call lasts to the end of the turn. `pause`: `call` pauses at the token
    that completes `closes`, `turn` at the token that ends the turn. `anchors`: texts that open a
    call only as the first text of a turn. Without `opens` and `anchors` any text may hold calls.
    `certain`: text that opens a call is never meant for the user, so text that cannot be parsed is
    a malformed call and not prose.

    `body` is the kind of content: `json`, where `closes` is ignored while an object is open;
    `line`, the same if the line begins with JSON; or `text`. `inner` are tags within a call: after
    the first tag, `closes` counts only directly after the second. `breaks` end a call even within
    its JSON. `section` are the texts around all calls of a turn.

    `named` is a pattern for the tool's name. `telling` matches a text that is certainly a call, so
    that the call may be announced before it ends. Both patterns begin at the opener. `shape` shows
    a call to a model that has written a malformed one. `parser` names vLLM's tool parser for the
    format, which vLLM's server is given; None if it is given ours. `guarded`: an opener counts only
    where a call may follow it (`mentions/behind.py`); elsewhere it is a mention. `thinks`: the
    markers of `caesura.intercept.calls.thinking` count; other model families have channels.
    `in_code`: an opener that is plain text counts in code too (`mentions/code.py`). `results`:
    texts that open a call's result, which the model must not write itself; behind a call, at the
    begin of a line, they end the turn. `keys`: a call is a JSON object with its `name`, or a list
    of such objects, and one of these keys holds the arguments; empty where another parser reads
    the calls.
    """

    name: str
    opens: tuple[str, ...]
    closes: str | None
    pause: Literal["call", "turn"]
    anchors: tuple[str, ...] = ()
    certain: bool = True
    body: Literal["json", "line", "text"] = "text"
    inner: tuple[str, str] | None = None
    breaks: tuple[str, ...] = ()
    section: tuple[str, str] = ("", "")
    named: str = ""
    telling: str = ""
    shape: str = ""
    parser: str | None = None
    guarded: bool = False
    thinks: bool = True
    in_code: bool = False
    results: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()

    @property
    def opens_anywhere(self) -> bool:
        """Whether a call has no known begin, so that every turn may hold one."""
        return not self.opens and not self.anchors
