"""A search result, and the interface of the search tool's back ends."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Hit:
    """One passage that a search found."""

    title: str
    """The document's title and the headings above the passage."""
    source: str
    """The passage's origin: a file, a page, a service."""
    text: str
    """The whole passage; the tool shows a part of it."""


class Backend(Protocol):
    """A back end of the search tool.

    Its errors are RuntimeErrors whose message goes to the model as one line.
    """

    async def search(self, query: str, limit: int) -> list[Hit]:
        """Return the best passages for a query of plain words, best first, at most `limit`."""
        ...

    async def aclose(self) -> None:
        """Release all resources."""
        ...
