"""The index of host memory: which blocks of KV cache have a copy, and in which slot.

With one group of full attention, blocks are copied one by one. The key of a copy is vLLM's chained
block hash where prefix caching is on, else the request and the position. KV cache is append-only,
so a copy stays valid. Later pauses of the same request can load it, and so can other requests with
the same prefix.

With other groups, blocks are of use only together: those of a window, or a state with the KV of all
tokens before it. There all of a paused request is copied (`Whole`), its partly filled blocks too.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from caesura.scheduler.vllm.engine.port import Place

if TYPE_CHECKING:
    from vllm.v1.request import Request

Key = Hashable


def keys_of(request: "Request", blocks: int) -> list[Key]:
    """Return the keys of the first `blocks` full blocks of a request's context."""
    if request.block_hashes:
        return list(request.block_hashes[:blocks])
    return [(request.request_id, index) for index in range(blocks)]


class OwnKey(NamedTuple):
    """The key of content that only one copy as a whole can use.

    `number` is that of the copy; the content is what a group keeps up to the token `end`.
    """

    request_id: str
    number: int
    group: int
    end: int


@dataclass(frozen=True, slots=True)
class Whole:
    """All that a request needs to go on behind its first `tokens` tokens, in every group.

    `keys` are those of the blocks at `places`.
    """

    tokens: int
    places: Sequence[Place]
    keys: list[Key]


def whole_of(
    request: "Request", tokens: int, places: Sequence[Place], hash_tokens: int, number: int
) -> Whole:
    """Return the keys of a request's blocks at these places, behind `tokens` tokens.

    vLLM's chained hashes name the content of blocks whose last token has one; there is a hash for
    each `hash_tokens` tokens. `number` is another one at each call, for the keys of the rest.
    """
    keys: list[Key] = []
    hashes = request.block_hashes
    for place in places:
        hashed, rest = divmod(place.end, hash_tokens)
        if rest or hashed > len(hashes):
            keys.append(OwnKey(request.request_id, number, place.group, place.end))
        else:
            keys.append((place.group, hashes[hashed - 1]))
    return Whole(tokens, places, keys)


class HostStore:
    """Keeps the slots of host memory and the keys of their copies.

    A slot is free, being written (`reserve` until `confirm` or `fail`), or holds a confirmed copy.
    A copy is wanted while a paused request may load it, or while a load reads it. The store never
    reuses a wanted copy; it reuses the others, least recently used first. A copy with an `OwnKey`
    is of no use to others, so it is dropped when nobody wants it any more.
    """

    def __init__(self, slots: int) -> None:
        """Create a store for `slots` blocks."""
        self.slots = slots
        self._free = list(range(slots - 1, -1, -1))
        self._slot_of: dict[Key, int] = {}
        self._pending: dict[Key, int] = {}
        self._wanted: dict[Key, int] = {}
        self._reusable: OrderedDict[Key, None] = OrderedDict()

    def shrink(self, slots: int) -> None:
        """Keep only the first `slots` slots, before any of them is used."""
        self.slots = min(self.slots, slots)
        self._free = list(range(self.slots - 1, -1, -1))

    @property
    def available(self) -> int:
        """Number of slots that can be written: free ones, and copies that are not wanted."""
        return len(self._free) + len(self._reusable)

    @property
    def used(self) -> int:
        """Number of slots that hold a copy or are being written."""
        return self.slots - len(self._free)

    def slot_of(self, key: Key) -> int | None:
        """Return the slot of a confirmed copy, or None."""
        return self._slot_of.get(key)

    def known(self, key: Key) -> bool:
        """Return whether there is a copy, or one is being made."""
        return key in self._slot_of or key in self._pending

    def reserve(self, key: Key) -> int | None:
        """Return a slot for a new copy, or None if every slot is wanted or being written."""
        if self._free:
            slot = self._free.pop()
        elif self._reusable:
            oldest, _ = self._reusable.popitem(last=False)
            slot = self._slot_of.pop(oldest)
        else:
            return None
        self._pending[key] = slot
        return slot

    def confirm(self, key: Key) -> None:
        """Mark a reserved copy as complete."""
        self._slot_of[key] = self._pending.pop(key)
        if key not in self._wanted:
            self._leave(key)

    def fail(self, key: Key) -> None:
        """Free the slot of a reserved copy that could not be made."""
        self._free.append(self._pending.pop(key))

    def want(self, keys: Iterable[Key]) -> None:
        """Protect present and future copies of these keys until as many calls of `unwant`."""
        for key in keys:
            self._wanted[key] = self._wanted.get(key, 0) + 1
            self._reusable.pop(key, None)

    def unwant(self, keys: Iterable[Key]) -> None:
        """Undo one `want`; the store will reuse the end of a context before its begin."""
        for key in reversed(list(keys)):
            left = self._wanted[key] - 1
            if left:
                self._wanted[key] = left
                continue
            del self._wanted[key]
            if key in self._slot_of:
                self._leave(key)

    def _leave(self, key: Key) -> None:
        """Let a copy that nobody wants be reused."""
        if isinstance(key, OwnKey):
            self._free.append(self._slot_of.pop(key))
        else:
            self._reusable[key] = None

    def forget(self, keys: Iterable[Key]) -> None:
        """Drop the copies of these keys, which are invalid or no longer needed."""
        for key in keys:
            slot = self._slot_of.pop(key, None)
            if slot is not None:
                self._reusable.pop(key, None)
                self._free.append(slot)

    @property
    def confirmed(self) -> list[Key]:
        """The keys of all complete copies."""
        return list(self._slot_of)
