"""Tokens are counted by the tokenizer of a model's directory, where there is one."""

from pathlib import Path

from caesura.runtime.launch import BUNDLED_MODEL
from caesura.runtime.token_counter import token_counter


def test_a_directory_with_a_tokenizer_counts_tokens() -> None:
    count = token_counter(BUNDLED_MODEL)
    assert count is not None
    assert count("") == 0
    assert 0 < count("The lamp costs 24.") < len("The lamp costs 24.")


def test_without_a_tokenizer_nothing_counts(tmp_path: Path) -> None:
    assert token_counter(str(tmp_path)) is None
    assert token_counter("org/name-on-the-hub") is None
