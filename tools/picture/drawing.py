"""Drawing in worker processes, as the tools call it."""

import asyncio
import base64
import logging
from typing import Any

from caesura.tools.picture.saved import PictureError, save_picture
from caesura.tools.result import Output
from caesura.tools.services import Services
from caesura.tools.worker import WorkerDied, WorkerFailed, WorkerPool

MAX_CALLS = 1_000
"""A process is replaced after this many pictures, so that its memory cannot grow for ever."""

log = logging.getLogger(__name__)


class Drawer:
    """Worker processes that draw, and the store for their pictures."""

    def __init__(self, services: Services, workers: int) -> None:
        self._store = services.artifacts
        self._pool = WorkerPool("caesura.tools.picture.render_child", workers, max_calls=MAX_CALLS)
        services.at_end(self._pool.aclose)

    async def draw(self, function: str, /, **arguments: Any) -> Output:
        """Call a drawing function of the child and store the PNG.

        A cancelled call kills the process. Raises PictureError and ArtifactError.
        """
        try:
            text = await self._pool.call(function, **arguments)
        except WorkerFailed as error:
            raise PictureError(str(error)) from None
        except WorkerDied as error:
            log.warning("drawing failed: %s", error)
            raise PictureError(
                "the picture cannot be drawn: it needs too much memory or crashes "
                "the drawing library; make it simpler"
            ) from None
        return await save_picture(self._store, await asyncio.to_thread(base64.b64decode, text))
