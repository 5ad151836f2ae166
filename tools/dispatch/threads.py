"""Runs functions that are not async in threads of their own, beside the event loop.

A pool would lose a thread to each function that never returns, until no call could run. Threads
cannot be killed. They are daemons, so that one that hangs does not keep the process from ending.
"""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any


async def in_thread(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call the function in a new thread, in a copy of the current context.

    After a cancellation the thread runs on to its own end. Raises what the function raises, and
    RuntimeError where no thread can be started.
    """
    loop = asyncio.get_running_loop()
    returned: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def work() -> None:
        try:
            tell(returned.set_result, context.run(function, *args, **kwargs))
        except StopIteration:
            # A future cannot carry StopIteration.
            tell(returned.set_exception, RuntimeError("StopIteration"))
        except BaseException as error:
            tell(returned.set_exception, error)

    def tell(setter: Callable[[Any], None], what: Any) -> None:
        with suppress(RuntimeError):  # the loop may be closed already
            loop.call_soon_threadsafe(settle, setter, what)

    def settle(setter: Callable[[Any], None], what: Any) -> None:
        if not returned.done():
            setter(what)

    name = f"tool {getattr(function, '__name__', '')}"
    threading.Thread(target=work, name=name, daemon=True).start()
    return await returned
