"""The diffusers back end of generate_image, as the API process sees it."""

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
"""How long a picture that nobody waits for may take to its next step, until it is killed."""
_PASSED = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "HF_HOME", "HF_HUB_CACHE")
_PASSED_TO_DOWNLOAD = ("HF_TOKEN", "HF_ENDPOINT", "HTTPS_PROXY", "SSL_CERT_FILE")


class Diffusion:
    """One model in one worker process, which is loaded at the first picture and kept.

    loaded: which model and how, as `diffusion_child.paint` takes it. A picture that is cancelled
    is given up between two steps, since loading the model again takes long; the process is killed
    only if it does not stop.
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
        """The picture as PNG; options: of the pipeline's call. Raises PictureError."""
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
    """Ask the process to stop; cancel the call, which kills it, if that takes too long."""
    await asyncio.to_thread(stop.touch)
    if not (await asyncio.wait([call], timeout=GRACE_SECONDS))[0]:
        call.cancel()
        await asyncio.wait([call])
    if not call.cancelled():
        call.exception()  # seen, and of no interest any more
    await asyncio.to_thread(stop.unlink, missing_ok=True)


def _environment(*, download: bool) -> dict[str, str]:
    """What the process needs to know besides what every worker does."""
    passed = _PASSED + (_PASSED_TO_DOWNLOAD if download else ())
    known = {name: os.environ[name] for name in passed if name in os.environ}
    return known if download else {**known, "HF_HUB_OFFLINE": "1"}
