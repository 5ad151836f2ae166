"""What an engine still knows of requests that have ended, found by walking all of its objects."""

import gc
import types
from collections import OrderedDict, deque
from collections.abc import Collection, Iterator
from typing import Any

from vllm.v1.request import Request

NOT_STATE = (type, types.ModuleType, types.BuiltinFunctionType, types.FrameType)


def remains(root: Any, request_ids: Collection[str]) -> list[str]:
    """Return where objects that `root` holds still name ended requests; none if nothing leaks."""
    return [_way(chain, found) for chain, found in _walk(root, frozenset(request_ids))]


def _walk(root: Any, request_ids: frozenset[str]) -> Iterator[tuple[list[Any], Any]]:
    parents: dict[int, Any] = {id(root): None}
    kept = [root]  # so that no id is given to another object meanwhile
    queue = deque(kept)
    while queue:
        holder = queue.popleft()
        for held in _held_by(holder):
            if (id(held) in parents and not isinstance(held, str)) or isinstance(held, NOT_STATE):
                continue
            if isinstance(held, Request) or (isinstance(held, str) and held in request_ids):
                yield _chain(holder, parents), held
                continue
            parents[id(held)] = holder
            kept.append(held)
            queue.append(held)


def _held_by(holder: Any) -> list[Any]:
    if isinstance(holder, types.FunctionType):
        return list(holder.__closure__ or ())  # its globals are its module's
    if isinstance(holder, OrderedDict) or (isinstance(holder, deque) and holder.maxlen):
        return []  # a memory with a bound, of which the oldest entry goes when others come
    return gc.get_referents(holder)


def _chain(holder: Any, parents: dict[int, Any]) -> list[Any]:
    chain = []
    while holder is not None:
        chain.append(holder)
        holder = parents[id(holder)]
    return chain[::-1]


def _way(chain: list[Any], found: Any) -> str:
    """Return the way from the root to a leftover, by the names of attributes where known."""
    steps = []
    for holder, held in zip(chain, [*chain[1:], found], strict=True):
        if isinstance(holder, dict):
            keys = [key for key, value in holder.items() if value is held and isinstance(key, str)]
            steps.append(f".{keys[0]}" if keys else "[...]")
        elif isinstance(holder, list | tuple | set | frozenset | deque):
            steps.append("[...]")
        else:
            names = [name for name in _slots(holder) if getattr(holder, name, None) is held]
            steps.append(f"<{type(holder).__name__}>{''.join(f'.{name}' for name in names[:1])}")
    return f"{''.join(steps)} = {found!r:.60}"


def _slots(holder: Any) -> list[str]:
    return [name for kind in type(holder).__mro__ for name in getattr(kind, "__slots__", ())]
