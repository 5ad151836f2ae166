"""The number of tokens of a text, by the tokenizer in a model's directory."""

from collections.abc import Callable
from pathlib import Path

FILE = "tokenizer.json"


def token_counter(model: str) -> Callable[[str], int] | None:
    """Return what counts the tokens of a text, without special tokens around it.

    None if the model is no directory with a `tokenizer.json`, or if the library `tokenizers`, which
    vLLM brings, is missing.
    """
    path = Path(model) / FILE
    try:
        from tokenizers import Tokenizer
    except ImportError:
        return None
    if not path.is_file():
        return None
    tokenizer = Tokenizer.from_file(str(path))

    def count(text: str) -> int:
        return len(tokenizer.encode(text, add_special_tokens=False).ids)

    return count
