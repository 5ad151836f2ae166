"""The speak tool: its settings, its three back ends, its checks of the text and of sound files."""

import asyncio
import base64
import re
import shutil
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from caesura.tools.artifacts import ArtifactStore
from caesura.tools.endpoint import Endpoint
from caesura.tools.errors import Permanent
from caesura.tools.result import Output
from caesura.tools.search.reading import markdown_blocks
from caesura.tools.services import Services, SetupError, ToolSettings, require
from caesura.tools.tool import Tool
from caesura.tools.worker import WorkerDied, WorkerFailed, WorkerPool

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


TIMEOUT_SECONDS = 60.0
MAX_CHARACTERS = 3_000
ESPEAK_VOICE = "en-us"
SERVICE_VOICE = "alloy"
PARAMETERS = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "description": "What is said."},
        "voice": {"type": "string", "description": "Another voice than the usual one."},
    },
    "required": ["text"],
    "additionalProperties": False,
}
_BULLET = re.compile(r"^[-*+] ")
_UNSPOKEN = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\ufeff\ufffe\uffff\ud800-\udfff]+"
)
_VOICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9+_ -]{0,39}")

Say = Callable[[str, str | None], Awaitable[bytes]]
"""Takes a text and a voice; returns a WAV file."""


class Settings(ToolSettings):
    """Settings of `[tools.speak]`."""

    backend: Literal["espeak", "piper", "endpoint"] = Field("espeak", description="the back end")
    voice: str | None = Field(
        None, description="default voice; espeak: a language, piper: a speaker"
    )
    words_per_minute: int = Field(175, ge=80, le=450, description="espeak: the speed")
    pitch: int = Field(50, ge=0, le=99, description="espeak: the pitch, from 0 to 99")
    speed: float = Field(1.0, ge=0.25, le=4.0, description="piper, endpoint: 2.0 is twice as fast")
    max_characters: int = Field(
        MAX_CHARACTERS, ge=1, le=20_000, description="longer texts are refused"
    )
    voice_file: Path | None = Field(None, description="piper: the voice's .onnx file")
    model: str | None = Field(None, description="endpoint: the name of the service's model")
    url: str | None = Field(None, description="endpoint: the service's address, up to /v1")
    api_key_env: str | None = Field(None, description="endpoint: the variable with its key")


def make(settings: Settings, services: Services) -> Tool:
    """Return the tool, for `Toolset`. Raises SetupError where its back end cannot work."""
    backends = {"espeak": _espeak, "piper": _piper, "endpoint": _endpoint}
    say = backends[settings.backend](settings, services)

    async def speak(text: str, voice: str | None = None) -> Output:
        spoken = spoken_text(text, settings.max_characters)
        return await save_sound(services.artifacts, await say(spoken, checked_voice(voice)))

    return Tool.from_schema(
        "speak",
        "Say a text aloud; makes a sound file.",
        PARAMETERS,
        speak,
        timeout_seconds=TIMEOUT_SECONDS,
        safe_to_repeat=True,
        concurrency=None if settings.backend == "endpoint" else 1,
        expected_seconds=1.0,
    )


def spoken_text(text: str, max_characters: int) -> str:
    """Return the text without marks of Markdown and control characters.

    Raises SpeechError if it is empty or too long.
    """
    clean = "\n".join(_UNSPOKEN.sub(" ", line) for line in text.splitlines())
    blocks = (_BULLET.sub("", block.text) for block in markdown_blocks(clean))
    # References such as `&#127;` may stand for such characters.
    spoken = " ".join(_UNSPOKEN.sub(" ", "\n".join(blocks)).split())
    if not spoken:
        raise SpeechError("the text is empty")
    if len(spoken) > max_characters:
        raise SpeechError(
            f"the text has {len(spoken)} characters; at most {max_characters} are allowed: "
            "speak it in parts"
        )
    return spoken


def checked_voice(voice: str | None) -> str | None:
    """Return a voice's name, or None for an empty one. Raises SpeechError for an invalid name."""
    if not voice:
        return None
    if not _VOICE.fullmatch(voice):
        raise SpeechError(f"invalid voice name {voice[:40]!r}: leave voice out")
    return voice


def _espeak(settings: Settings, services: Services) -> Say:
    program = shutil.which("espeak-ng")
    if program is None:
        require("espeakng_loader", "speech", "speak")
    return _worker(
        services,
        "caesura.tools.speech.espeak_child",
        lambda text, voice: {
            "program": program,
            "text": text,
            "voice": voice or settings.voice or ESPEAK_VOICE,
            "words_per_minute": settings.words_per_minute,
            "pitch": settings.pitch,
        },
    )


def _piper(settings: Settings, services: Services) -> Say:
    require("piper", "piper", "speak")
    if settings.voice_file is None:
        raise SetupError("[tools.speak] voice_file: set it to a piper voice's .onnx file")
    model = settings.voice_file.expanduser()
    for file in (model, Path(f"{model}.json")):
        if not file.is_file():
            raise SetupError(
                f"[tools.speak] voice_file: {file} does not exist; a piper voice is a file "
                "NAME.onnx with NAME.onnx.json beside it"
            )
    return _worker(
        services,
        "caesura.tools.speech.piper_child",
        lambda text, voice: {
            "model": str(model),
            "text": text,
            "speaker": voice or settings.voice,
            "length_scale": 1 / settings.speed,
        },
    )


def _worker(
    services: Services, module: str, arguments: Callable[[str, str | None], dict[str, Any]]
) -> Say:
    """Return a function that calls `speak` of a module in a worker process."""
    pool = WorkerPool(module)
    services.at_end(pool.aclose)

    async def say(text: str, voice: str | None) -> bytes:
        try:
            told = await pool.call("speak", **arguments(text, voice))
        except (WorkerFailed, WorkerDied) as error:
            raise SpeechError(str(error)) from None
        return await asyncio.to_thread(base64.b64decode, told)

    return say


def _endpoint(settings: Settings, services: Services) -> Say:
    endpoint = Endpoint(
        "speak",
        settings.url,
        settings.api_key_env,
        services,
        timeout_seconds=settings.timeout_seconds or TIMEOUT_SECONDS,
    )

    async def say(text: str, voice: str | None) -> bytes:
        asked = {
            "model": settings.model,
            "input": text,
            "voice": voice or settings.voice or SERVICE_VOICE,
            "response_format": "wav",
            "speed": settings.speed if settings.speed != 1.0 else None,
        }
        body = {name: value for name, value in asked.items() if value is not None}
        return (await endpoint.file("/audio/speech", body)).data

    return say
