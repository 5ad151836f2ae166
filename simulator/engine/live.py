"""A session in progress: its state for the client and the model runner."""

from dataclasses import dataclass

from caesura.simulator.engine.tokens import Names
from caesura.simulator.results import SessionResult
from caesura.simulator.session import Segment, Session


@dataclass(slots=True, eq=False)
class Live:
    """One session in progress.

    `index` is that of its present segment, and `place` counts the sessions sent before it.
    `context` are the tokens of its context, up to what the present segment was given. The present
    segment has `left` tokens to decode, the last of which is `last`. `admitted`: some of the
    segment has been scheduled. `reached` tokens of the context have been computed before; the
    number is updated only when KV may be lost. `anew`: the engine has no request of the session.
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
    anew: bool = True

    @property
    def segment(self) -> Segment:
        """Return the present segment."""
        return self.session.segments[self.index]

    @property
    def decoded(self) -> int:
        """Return the decoded tokens of the present segment."""
        return self.segment.decode_tokens - self.left

    def begin(self, last: int, now: float) -> None:
        """Begin the next segment, which ends with the token `last`."""
        if self.index >= 0:
            self.context += self.segment.decode_tokens
        self.index += 1
        self.context += self.segment.given_tokens
        self.left, self.last = self.segment.decode_tokens, last
        self.admitted = False
        self.sent, self.first = now, 0.0

    def end(self, now: float) -> bool:
        """Record the end of the present segment; return whether it was the last."""
        self.result.segments.append((self.sent, self.first, now))
        self.result.segment_tokens.append(self.segment.decode_tokens)
        if self.index + 1 < len(self.session.segments):
            return False
        self.result.ended = now
        return True

    def cut_off(self) -> None:
        """Record the unfinished segment of a session that was cut off."""
        if self.left:
            self.result.segments.append((self.sent, self.first, 0.0))
            self.result.segment_tokens.append(self.segment.decode_tokens)
