"""What a back end of the search tool gives, and what a back end is."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Hit:
    """One passage that a search found."""

    title: str
    """What it is about: the document's title, and its headings."""
    source: str
    """Where it stands: a file, a page, a service."""
    text: str
    """The whole passage; the tool shows a part of it."""


class Backend(Protocol):
    """A place to search in.

    Its errors go to the model as a line: they are RuntimeErrors that say in words what is wrong.
    """

    async def search(self, query: str, limit: int) -> list[Hit]:
        """The best passages for a query of plain words, best first, at most `limit`."""
        ...

    async def aclose(self) -> None:
        """Let go of everything."""
        ...
