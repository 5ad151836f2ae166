"""Asking by a function that the developer gave."""

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress

from caesura.tools.people.pending import Pending

Reply = str | bool | None
Callback = Callable[[Pending], Reply | Awaitable[Reply]]


async def called(callback: Callback, item: Pending) -> Reply:
    """What the callback says; a plain function runs in a thread.

    The thread is a daemon, and abandoned when this is cancelled: a function that waits at a
    keyboard must not keep the process from ending. Raises what the callback raises.
    """
    if inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(
        getattr(callback, "__call__", None)  # noqa: B004 - an object whose call is async
    ):
        result = callback(item)
    else:
        result = await _in_daemon(callback, item)
    return await result if inspect.isawaitable(result) else result


async def _in_daemon(callback: Callback, item: Pending) -> Reply | Awaitable[Reply]:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Reply | Awaitable[Reply]] = loop.create_future()

    def hand_over(result: Reply | Awaitable[Reply], error: Exception | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def work() -> None:
        result: Reply | Awaitable[Reply] = None
        failure: Exception | None = None
        try:
            result = callback(item)
        except StopIteration:
            failure = RuntimeError("StopIteration")  # a future cannot carry it
        except Exception as error:
            failure = error
        with suppress(RuntimeError):  # the loop has been closed meanwhile
            loop.call_soon_threadsafe(hand_over, result, failure)

    threading.Thread(target=work, name=f"question {item.id}", daemon=True).start()
    return await future
