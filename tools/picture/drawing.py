"""Having a picture drawn by a worker process, as the tools see it."""

import asyncio
import base64
import logging
from typing import Any

from caesura.tools.picture.saved import PictureError, save_picture
from caesura.tools.result import Output
from caesura.tools.services import Services
from caesura.tools.worker import WorkerDied, WorkerFailed, WorkerPool

MAX_CALLS = 1_000
"""A process that has drawn so many pictures is replaced, so that it cannot grow for ever."""

log = logging.getLogger(__name__)


class Drawer:
    """Worker processes that draw, and the store for what they have drawn."""

    def __init__(self, services: Services, workers: int) -> None:
        self._store = services.artifacts
        self._pool = WorkerPool("caesura.tools.picture.render_child", workers, max_calls=MAX_CALLS)
        services.at_end(self._pool.aclose)

    async def draw(self, function: str, /, **arguments: Any) -> Output:
        """Call a function of the child that draws; store the PNG.

        A call that is cancelled, as by a time-out, kills the process. Raises PictureError and
        ArtifactError.
        """
        try:
            text = await self._pool.call(function, **arguments)
        except WorkerFailed as error:
            raise PictureError(str(error)) from None
        except WorkerDied as error:
            log.warning("drawing: %s", error)
            raise PictureError(
                "the picture cannot be drawn: it needs too much memory, or breaks the library "
                "that draws it; make it simpler"
            ) from None
        return await save_picture(self._store, await asyncio.to_thread(base64.b64decode, text))
