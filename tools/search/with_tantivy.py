"""An index by tantivy, with English stemming, read from its files."""

from collections.abc import Sequence
from pathlib import Path

import tantivy

from caesura.tools.search.corpus import TITLE_WEIGHT
from caesura.tools.search.derived import Row

_HEAP_BYTES = 50_000_000


class TantivyIndex:
    """A tantivy index in its directory."""

    def __init__(self, index: tantivy.Index) -> None:
        self._index = index
        self._searcher = index.searcher()

    def find(self, words: Sequence[str], limit: int) -> list[int]:
        """Return the numbers of the best passages, best first."""
        # Quotes make each word a literal, so that it cannot act as query syntax.
        query, _ = self._index.parse_query_lenient(
            " ".join(f'"{word}"' for word in words),
            ["title", "text"],
            field_boosts={"title": TITLE_WEIGHT},
        )
        found = self._searcher.search(query, limit).hits
        return [int(self._searcher.doc(address)["number"][0]) for _, address in found]


def build(directory: Path, rows: Sequence[Row]) -> None:
    """Build the index of these passages in a directory. Blocking."""
    schema = tantivy.SchemaBuilder()
    schema.add_unsigned_field("number", stored=True)
    schema.add_text_field("title", tokenizer_name="en_stem")
    schema.add_text_field("text", tokenizer_name="en_stem")
    writer = tantivy.Index(schema.build(), str(directory)).writer(_HEAP_BYTES, 1)
    for number, title, text in rows:
        writer.add_document(tantivy.Document(number=number, title=title, text=text))
    writer.commit()
    writer.wait_merging_threads()


def load(directory: Path) -> TantivyIndex:
    """Return the index in a directory. Blocking."""
    return TantivyIndex(tantivy.Index.open(str(directory)))
