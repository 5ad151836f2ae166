"""What the tokens of sessions say, as numbers: the words of calls, and whether a result failed."""

from typing import Protocol

from vllm.v1.request import Request

from caesura.scheduler.predict.words import CallWords, WordHasher, tells_of_error
from caesura.scheduler.vllm.call_detection import CallDetector

MAX_RESULT_TOKENS = 96
"""The number of a result's first tokens that are read for an error."""


class Contents(Protocol):
    """Reads calls and results; a simulation, which has no texts, knows them from its workload."""

    def words(self, session: str, calls: int, call: bytes) -> CallWords:
        """Return the hashed words of the call of this text, which ends segment `calls`."""
        ...

    def failed(self, session: str, calls: int, request: Request, tokens: int) -> bool:
        """Return whether the result of the last of `calls` calls is an error.

        The result is the last `tokens` tokens of the request.
        """
        ...


class TokenContents:
    """Reads the contents of served sessions from their tokens."""

    def __init__(self, detector: CallDetector, salt: bytes) -> None:
        """Create it; `salt` keys the hashes of words."""
        self._detector = detector
        self._hasher = WordHasher(salt)

    def words(self, session: str, calls: int, call: bytes) -> CallWords:
        """Return the hashed words of a call's text."""
        return self._hasher.words(call)

    def failed(self, session: str, calls: int, request: Request, tokens: int) -> bool:
        """Return whether the begin of the result reads like an error."""
        begin = request.num_tokens - tokens
        result = request.all_token_ids[begin : begin + MAX_RESULT_TOKENS]
        return tokens > 0 and tells_of_error(self._detector.text_of(result))
