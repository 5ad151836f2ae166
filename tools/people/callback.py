"""Asking by a function that the developer provides."""

import inspect
from collections.abc import Awaitable, Callable

from caesura.tools.people.pending import Pending
from caesura.tools.tool import in_thread

Reply = str | bool | None
Callback = Callable[[Pending], Reply | Awaitable[Reply]]


async def called(callback: Callback, item: Pending) -> Reply:
    """Return the callback's answer; a function that is not async runs in a thread.

    A cancellation abandons the thread. Raises what the callback raises.
    """
    if inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(
        getattr(callback, "__call__", None)  # noqa: B004 - an object whose call is async
    ):
        result = callback(item)
    else:
        result = await in_thread(callback, item)
    answer: Reply = await result if inspect.isawaitable(result) else result
    return answer
