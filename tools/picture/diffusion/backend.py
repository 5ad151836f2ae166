"""The diffusers back end of generate_image, as the API process calls it."""

import asyncio
import base64
import os
import tempfile
from itertools import count
from pathlib import Path
from typing import Any

from caesura.tools.picture.saved import PictureError
from caesura.tools.worker import WorkerDied, WorkerFailed, WorkerPool

GRACE_SECONDS = 10.0
"""How long a cancelled picture may take to reach its next step before the process is killed."""
_PASSED = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "HF_HOME", "HF_HUB_CACHE")
_PASSED_TO_DOWNLOAD = ("HF_TOKEN", "HF_ENDPOINT", "HTTPS_PROXY", "SSL_CERT_FILE")


class Diffusion:
    """One model in one worker process, which is loaded at the first picture and kept.

    loaded: the model and how to load it, as `child.paint` takes it. A cancelled picture stops
    between two steps, since loading the model again takes long. The process is killed only if it
    does not stop.
    """

    def __init__(self, loaded: dict[str, Any]) -> None:
        self._loaded = loaded
        self._stops = tempfile.TemporaryDirectory(prefix="caesura-", ignore_cleanup_errors=True)
        self._numbers = count()
        self._given_up: set[asyncio.Task[None]] = set()
        self._pool = WorkerPool(
            "caesura.tools.picture.diffusion.child",
            environment=_environment(download=loaded["download"]),
            idle_seconds=None,
        )

    async def paint(self, prompt: str, seed: int, options: dict[str, Any]) -> bytes:
        """Return the picture as PNG. options: of the pipeline's call. Raises PictureError."""
        stop = Path(self._stops.name) / str(next(self._numbers))
        call = asyncio.ensure_future(
            self._pool.call(
                "paint",
                loaded=self._loaded,
                options=options,
                prompt=prompt,
                seed=seed,
                stop=str(stop),
            )
        )
        try:
            text = await asyncio.shield(call)
        except (WorkerFailed, WorkerDied) as error:
            raise PictureError(f"the model made no picture: {error}") from None
        except asyncio.CancelledError:
            ending = asyncio.ensure_future(_give_up(call, stop))
            self._given_up.add(ending)
            ending.add_done_callback(self._given_up.discard)
            raise
        return await asyncio.to_thread(base64.b64decode, text)

    async def aclose(self) -> None:
        """End the process. May be called twice."""
        await self._pool.aclose()
        if self._given_up:
            await asyncio.wait(self._given_up)
        await asyncio.to_thread(self._stops.cleanup)


async def _give_up(call: asyncio.Future[Any], stop: Path) -> None:
    """Ask the process to stop; if that takes too long, cancel the call, which kills it."""
    await asyncio.to_thread(stop.touch)
    if not (await asyncio.wait([call], timeout=GRACE_SECONDS))[0]:
        call.cancel()
        await asyncio.wait([call])
    if not call.cancelled():
        call.exception()  # marks it as retrieved; its result is not needed
    await asyncio.to_thread(stop.unlink, missing_ok=True)


def _environment(*, download: bool) -> dict[str, str]:
    """Return the variables that the process needs besides those of every worker."""
    passed = _PASSED + (_PASSED_TO_DOWNLOAD if download else ())
    known = {name: os.environ[name] for name in passed if name in os.environ}
    return known if download else {**known, "HF_HUB_OFFLINE": "1"}
