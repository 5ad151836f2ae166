"""What is closed at the end of an `async with` block."""

from abc import ABC, abstractmethod
from typing import Self


class AsyncClosing(ABC):
    """Calls `aclose` at the end of an `async with` block, however the block ends."""

    @abstractmethod
    async def aclose(self) -> None:
        """Free what this holds. Idempotent."""

    async def __aenter__(self) -> Self:
        """Return itself."""
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Close it."""
        await self.aclose()
