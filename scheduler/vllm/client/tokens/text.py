"""The text of decoded tokens, from their bytes."""

import codecs
from collections.abc import Sequence

from caesura.intercept.calls.vocabulary import Vocabulary


class TokenText:
    """Decodes the tokens of one turn; a character may be spread over several tokens."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_ids: Sequence[int]) -> str:
        """Return the text of further tokens, up to the last complete character."""
        return self._decoder.decode(b"".join(map(self._vocabulary.bytes_of, token_ids)))
