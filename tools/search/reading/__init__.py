"""Reading documents into passages: text, Markdown, HTML and JSON lines."""

from caesura.tools.search.reading.files import SUFFIXES, Fields, ReadError, read_passages
from caesura.tools.search.reading.passages import Passage

__all__ = ["SUFFIXES", "Fields", "Passage", "ReadError", "read_passages"]
