"""WAV files: their duration, and the repair of headers with wrong lengths."""

import asyncio
import struct

from caesura.tools.artifacts import ArtifactStore
from caesura.tools.errors import Permanent
from caesura.tools.result import Output

_HEAD_BYTES = 12


class SpeechError(Permanent):
    """The text could not be spoken. The message is one sentence for the model."""


def measured(data: bytes) -> tuple[bytes, float]:
    """Return a WAV file with a correct header, and its duration in seconds.

    A header written to a pipe has wrong lengths, since they were not known yet; they are
    corrected. Raises SpeechError for data that is not WAV, or holds no sound.
    """
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise SpeechError("the speech program's output is not a WAV file")
    at, bytes_per_second = _HEAD_BYTES, 0
    while at + 8 <= len(data):
        kind, size = struct.unpack_from("<4sI", data, at)
        at += 8
        if kind == b"fmt " and at + 12 <= len(data):
            (bytes_per_second,) = struct.unpack_from("<I", data, at + 8)
        elif kind == b"data":
            there = min(size, len(data) - at)
            if not there or not bytes_per_second:
                break
            fixed = bytearray(data)
            struct.pack_into("<I", fixed, at - 4, there)
            struct.pack_into("<I", fixed, 4, len(data) - 8)
            return bytes(fixed), there / bytes_per_second
        at += size + size % 2
    raise SpeechError("the speech program's output contains no sound")


async def save_sound(store: ArtifactStore, data: bytes) -> Output:
    """Store a WAV file and return its description. Raises SpeechError and ArtifactError."""
    data, seconds = await asyncio.to_thread(measured, data)
    artifact = await asyncio.to_thread(store.put, data, "wav")
    return Output(f"Saved as {artifact.url}: WAV sound, {seconds:.1f} s.", (artifact,))
