"""espeak-ng in a worker process: the program by its path, or the library of `espeakng_loader`.

espeak-ng is under the GPL, so it runs in a process separate from the server. Markup in a text is
spoken and not interpreted.
"""

import base64
import ctypes
import functools
import io
import subprocess
import wave
from typing import Any

SYNCHRONOUS = 2
"""Option of espeak_Initialize: espeak_Synth returns after its last callback."""
UTF8 = 1
BY_CHARACTERS = 1
RATE, PITCH = 1, 3
_Callback = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p
)


class NoVoice(ValueError):
    """The voice does not exist."""

    def __init__(self, voice: str) -> None:
        super().__init__(f"unknown voice {voice!r}: use a language such as en-us, de or fr")


def speak(program: str | None, text: str, voice: str, words_per_minute: int, pitch: int) -> str:
    """Return the text as WAV in base64. program: the path of espeak-ng; None: the library."""
    run = _by_library if program is None else functools.partial(_by_program, program)
    return base64.b64encode(run(text, voice, words_per_minute, pitch)).decode()


def _by_program(program: str, text: str, voice: str, words_per_minute: int, pitch: int) -> bytes:
    said = subprocess.run(
        [
            *(program, "--stdin", "--stdout", "-b", str(UTF8)),
            *("-v", voice, "-s", str(words_per_minute), "-p", str(pitch)),
        ],
        input=text.encode(),
        capture_output=True,
        check=False,
    )
    if said.returncode == 0:
        return said.stdout
    words = said.stderr.decode("utf-8", "replace").strip()
    if "voice" in words.lower():
        raise NoVoice(voice)
    raise RuntimeError(f"espeak-ng failed: {words or said.returncode}")


def _by_library(text: str, voice: str, words_per_minute: int, pitch: int) -> bytes:
    library, rate = _library()
    samples = bytearray()

    def take(sound: Any, count: int, events: Any) -> int:
        if sound and count > 0:
            samples.extend(ctypes.string_at(sound, 2 * count))
        return 0

    if library.espeak_SetVoiceByName(voice.encode()) != 0:
        raise NoVoice(voice)
    callback = _Callback(take)  # this reference keeps it alive while it may be called
    library.espeak_SetSynthCallback(callback)
    library.espeak_SetParameter(RATE, words_per_minute, 0)
    library.espeak_SetParameter(PITCH, pitch, 0)
    written = text.encode() + b"\0"
    status = library.espeak_Synth(
        written, ctypes.c_size_t(len(written)), 0, BY_CHARACTERS, 0, UTF8, None, None
    )
    if status != 0:
        raise RuntimeError(f"espeak-ng failed with status {status}")
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(rate)
        sound.writeframes(samples)
    return file.getvalue()


@functools.cache
def _library() -> tuple[ctypes.CDLL, int]:
    """Return the initialised library, and its sample rate in Hz."""
    import espeakng_loader  # type: ignore[import-untyped]

    library = ctypes.CDLL(espeakng_loader.get_library_path())
    data = str(espeakng_loader.get_data_path()).encode()
    rate = library.espeak_Initialize(SYNCHRONOUS, 0, data, 0)
    if rate <= 0:
        raise RuntimeError("espeak-ng does not start: its data files are missing")
    return library, rate
