"""A session under way: where it stands, as its client and the model runner need to know."""

from dataclasses import dataclass

from caesura.simulator.engine.tokens import Names
from caesura.simulator.results import SessionResult
from caesura.simulator.session import Segment, Session


@dataclass(slots=True, eq=False)
class Live:
    """One session under way.

    `index` counts its segments, `place` the sessions that were sent before it. `context` is the
    tokens that its context has grown to, up to what the present segment was given. Of the present
    segment `left` tokens are still to be decoded, the last of them `last`; `admitted` tells that
    some of it has been scheduled. `reached` tokens of the context have been computed before, as
    far as that matters: it is brought up to date where KV may be lost.
    """

    session: Session
    result: SessionResult
    names: Names
    place: int
    index: int = -1
    context: int = 0
    left: int = 0
    last: int = 0
    admitted: bool = False
    reached: int = 0
    sent: float = 0.0
    first: float = 0.0

    @property
    def segment(self) -> Segment:
        """The present segment."""
        return self.session.segments[self.index]

    @property
    def decoded(self) -> int:
        """Tokens of the present segment that have been decoded."""
        return self.segment.decode_tokens - self.left

    def begin(self, last: int, now: float) -> None:
        """Begin the next segment, which will end with the token `last`."""
        if self.index >= 0:
            self.context += self.segment.decode_tokens
        self.index += 1
        self.context += self.segment.given_tokens
        self.left, self.last = self.segment.decode_tokens, last
        self.admitted = False
        self.sent, self.first = now, 0.0

    def end(self, now: float) -> bool:
        """Note that the present segment has ended; return whether that was the last."""
        self.result.segments.append((self.sent, self.first, now))
        if self.index + 1 < len(self.session.segments):
            return False
        self.result.ended = now
        return True

    def cut_off(self) -> None:
        """Note what has become of a session that does not end."""
        if self.left:
            self.result.segments.append((self.sent, self.first, 0.0))
