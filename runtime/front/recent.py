"""A bounded memory of servers."""

from collections import OrderedDict


class Recent:
    """Servers by key, of which the least recently used are forgotten."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._found: OrderedDict[str, str] = OrderedDict()

    def get(self, key: str) -> str:
        """Return the server of a key, or an empty text."""
        if key in self._found:
            self._found.move_to_end(key)
        return self._found.get(key, "")

    def put(self, key: str, server: str) -> None:
        """Remember the server of a key."""
        self._found[key] = server
        self._found.move_to_end(key)
        if len(self._found) > self._size:
            self._found.popitem(last=False)

    def drop(self, server: str) -> None:
        """Forget all keys of a server."""
        self._found = OrderedDict(item for item in self._found.items() if item[1] != server)
