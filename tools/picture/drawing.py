"""Pictures that tools draw: worker processes for it, and storing and describing the files."""

import asyncio
import base64
import logging
import struct
from dataclasses import dataclass
from typing import Any

from caesura.tools.artifacts import ArtifactStore
from caesura.tools.errors import Permanent
from caesura.tools.result import Output
from caesura.tools.services import Services
from caesura.tools.worker import WorkerDied, WorkerFailed, WorkerPool

_NO_SIZE = {0xC4, 0xC8, 0xCC}
"""JPEG markers in the range of frame headers that do not start a frame."""


class PictureError(Permanent):
    """The picture could not be made. The message is one sentence for the model."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture file's suffix, its format's name, and its size in pixels."""

    suffix: str
    format: str
    width: int
    height: int


def picture_of(data: bytes) -> Picture:
    """Read the header of a PNG, JPEG or WebP. Raises PictureError for other data."""
    try:
        if data[:8] == b"\x89PNG\r\n\x1a\n" and data[12:16] == b"IHDR":
            return Picture("png", "PNG", *struct.unpack_from(">II", data, 16))
        if data[:3] == b"\xff\xd8\xff":
            return Picture("jpg", "JPEG", *_jpeg_size(data))
        if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            return Picture("webp", "WebP", *_webp_size(data))
    except (struct.error, IndexError, ValueError):
        raise PictureError("the picture is damaged") from None
    raise PictureError("the result is not a PNG, JPEG or WebP picture")


async def save_picture(store: ArtifactStore, data: bytes) -> Output:
    """Store a picture and return its description. Raises PictureError and ArtifactError."""
    # In a thread too: a hostile header can take seconds to read.
    picture = await asyncio.to_thread(picture_of, data)
    artifact = await asyncio.to_thread(store.put, data, picture.suffix)
    text = f"{picture.format} picture, {picture.width} x {picture.height}"
    return Output(f"Saved as {artifact.url}: {text}.", (artifact,))


def _jpeg_size(data: bytes) -> tuple[int, int]:
    """Return the size in the first frame header, found by following the markers."""
    at = 2
    while data[at] == 0xFF:
        marker = data[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in _NO_SIZE:
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
        at += 2 + max(2, struct.unpack_from(">H", data, at + 2)[0])
    raise ValueError("no frame")


def _webp_size(data: bytes) -> tuple[int, int]:
    """Return the size, which depends on the first chunk: extended, lossless or lossy."""
    match data[12:16]:
        case b"VP8X":
            return (
                1 + int.from_bytes(data[24:27], "little"),
                1 + int.from_bytes(data[27:30], "little"),
            )
        case b"VP8L":
            bits = struct.unpack_from("<I", data, 21)[0]
            return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
        case b"VP8 ":
            width, height = struct.unpack_from("<HH", data, 26)
            return width & 0x3FFF, height & 0x3FFF
    raise ValueError("an unknown chunk")


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
