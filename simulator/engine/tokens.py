"""The tokens of simulated sessions, and the names of their blocks.

Only two facts about tokens matter to a scheduler: the token that ends a segment, which holds the
whole call, and which blocks hold the same content. So a context repeats one word. A block's name is
its session and its position instead of a chain of hashes; names are equal exactly if contents are.
"""

from typing import Any

from caesura.intercept.calls.vocabulary import Vocabulary
from caesura.simulator.session import Session, Workload

WORD = 0
"""The token that contexts repeat. It stands for no text, so that it is read fast."""

END = 1
"""The token that ends a session."""


class Tokens:
    """The vocabulary of a workload: a word, an end, and for each tool one token that calls it."""

    def __init__(self, workload: Workload) -> None:
        segments = (segment for session in workload.sessions for segment in session.segments)
        tools = dict.fromkeys(segment.tool for segment in segments if segment.tool)
        self._call_of = {tool: END + 1 + index for index, tool in enumerate(tools)}
        calls = [f'<tool_call>{{"name": "{tool}"}}'.encode() for tool in tools]
        self.vocabulary = Vocabulary([b"", b"<end>", *calls])
        offered: dict[str, dict[str, None]] = {}
        for session in workload.sessions:
            names = (segment.tool for segment in session.segments if segment.tool)
            offered.setdefault(session.kind, {}).update(dict.fromkeys(names))
        self._offered = {kind: tuple(names) for kind, names in offered.items()}

    def last_of(self, tool: str) -> int:
        """Return the token that ends a segment: the call of its tool, or the end."""
        return self._call_of[tool] if tool else END

    def offered_to(self, kind: str) -> tuple[str, ...]:
        """Return the tools that a kind of sessions is offered: all that any of them calls."""
        return self._offered[kind]


class Names:
    """The names of the blocks of one session's context, front to back, `block_tokens` each.

    Blocks wholly within the shared prefix have the same names in all sessions that share it.
    """

    __slots__ = ("_block_tokens", "_names", "_own", "_prefix", "_shared_blocks")

    def __init__(self, own: bytes, prefix: bytes, shared_tokens: int, block_tokens: int) -> None:
        self._own = own
        self._prefix = prefix
        self._block_tokens = block_tokens
        self._shared_blocks = shared_tokens // block_tokens
        self._names: list[bytes] = []

    def hash_blocks(self, request: Any) -> list[bytes]:
        """Return names for a request's unnamed full blocks; this replaces vLLM's block hasher."""
        named, full = len(request.block_hashes), request.num_tokens // self._block_tokens
        if full <= named:
            return []
        names = self._names
        for index in range(len(names), full):
            owner = self._prefix if index < self._shared_blocks else self._own
            names.append(owner + index.to_bytes(4, "big"))
        return names[named:full]


class BlockNames:
    """Gives each session names for its blocks; `block_tokens` are the tokens of a block."""

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._prefixes: dict[str, bytes] = {}

    def of(self, session: Session, number: int) -> Names:
        """Return the names of a session's blocks; no other session has its `number`."""
        prefix = b"p" + len(self._prefixes).to_bytes(4, "big")
        prefix = self._prefixes.setdefault(session.shared_name, prefix)
        own = b"s" + number.to_bytes(4, "big")
        return Names(own, prefix, session.shared_tokens, self._block_tokens)
