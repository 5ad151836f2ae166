"""WAV files: how long they last, and headers that are wrong because they were written first."""

import asyncio
import struct

from caesura.tools.artifacts import ArtifactStore
from caesura.tools.errors import Permanent
from caesura.tools.result import Output

_HEAD_BYTES = 12


class SpeechError(Permanent):
    """There is no sound. The message is one sentence for the model."""


def measured(data: bytes) -> tuple[bytes, float]:
    """A WAV file and how many seconds it lasts.

    What was written to a pipe says of its length what nobody could know then: the lengths in the
    header are set right. Raises SpeechError for what is no WAV, or holds no sound.
    """
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise SpeechError("what was spoken is no WAV file")
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
    raise SpeechError("nothing was spoken: the sound is empty")


async def save_sound(store: ArtifactStore, data: bytes) -> Output:
    """Store a WAV file and say where. Raises SpeechError and ArtifactError."""
    data, seconds = await asyncio.to_thread(measured, data)
    artifact = await asyncio.to_thread(store.put, data, "wav")
    return Output(f"Saved as {artifact.url}: WAV sound, {seconds:.1f} s.", (artifact,))
