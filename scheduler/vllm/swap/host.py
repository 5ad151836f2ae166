"""Which blocks of KV cache have a copy in host memory, and in which slot.

A copy is found by the content of its block: by vLLM's chained block hash where prefix caching is
on, else by request and position. KV cache is append-only, so that a copy stays valid as long as
anybody may ask for that content: over later pauses of the same request, and for whoever comes with
the same prefix.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vllm.v1.request import Request

Key = Hashable


def keys_of(request: "Request", blocks: int) -> list[Key]:
    """Return the names of the first full blocks of a request's context, by content or by place."""
    if request.block_hashes:
        return list(request.block_hashes[:blocks])
    return [(request.request_id, index) for index in range(blocks)]


class HostStore:
    """Slots of host memory and what they hold.

    A slot is free, being written (`reserve` until `confirm` or `fail`), or holds a confirmed copy.
    Copies that a paused request may come back for are wanted and are never reused; the others are,
    least recently used first. Those that are read from at the moment are wanted too.
    """

    def __init__(self, slots: int) -> None:
        """`slots` blocks fit into host memory."""
        self.slots = slots
        self._free = list(range(slots - 1, -1, -1))
        self._slot_of: dict[Key, int] = {}
        self._pending: dict[Key, int] = {}
        self._wanted: dict[Key, int] = {}
        self._reusable: OrderedDict[Key, None] = OrderedDict()

    @property
    def available(self) -> int:
        """Slots that can be written: free, or holding what nobody wants."""
        return len(self._free) + len(self._reusable)

    @property
    def used(self) -> int:
        """Slots that hold a copy or are being written."""
        return self.slots - len(self._free)

    def slot_of(self, key: Key) -> int | None:
        """Return the slot of a confirmed copy."""
        return self._slot_of.get(key)

    def known(self, key: Key) -> bool:
        """Whether there is a copy, or one is being made."""
        return key in self._slot_of or key in self._pending

    def reserve(self, key: Key) -> int | None:
        """Take a slot for a new copy; None: every slot holds what somebody wants."""
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
        """The copy is there."""
        self._slot_of[key] = self._pending.pop(key)
        if key not in self._wanted:
            self._reusable[key] = None

    def fail(self, key: Key) -> None:
        """The copy could not be made."""
        self._free.append(self._pending.pop(key))

    def want(self, keys: Iterable[Key]) -> None:
        """Protect what holds these contents, now or later, until as many calls of `unwant`."""
        for key in keys:
            self._wanted[key] = self._wanted.get(key, 0) + 1
            self._reusable.pop(key, None)

    def unwant(self, keys: Iterable[Key]) -> None:
        """Undo one `want`. The back of a context is reused before its front."""
        for key in reversed(list(keys)):
            left = self._wanted[key] - 1
            if left:
                self._wanted[key] = left
                continue
            del self._wanted[key]
            if key in self._slot_of:
                self._reusable[key] = None

    def forget(self, keys: Iterable[Key]) -> None:
        """Drop copies that cannot be trusted or will never be asked for again."""
        for key in keys:
            slot = self._slot_of.pop(key, None)
            if slot is not None:
                self._reusable.pop(key, None)
                self._free.append(slot)

    @property
    def confirmed(self) -> list[Key]:
        """Everything that there is a copy of."""
        return list(self._slot_of)
