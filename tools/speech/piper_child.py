"""A piper voice in a worker process, loaded once. piper is under the GPL."""

import base64
import functools
import io
import wave
from pathlib import Path
from typing import Any


def speak(model: str, text: str, speaker: str | None, length_scale: float) -> str:
    """Return the text as WAV in base64. model: the .onnx file, with its .onnx.json beside it.

    speaker: one of the voice's speakers, by name. length_scale: 2.0 is half as fast.
    """
    from piper.config import SynthesisConfig

    voice = _voice(model)
    known = voice.config.speaker_id_map
    if speaker is not None and speaker not in known:
        named = ", ".join(list(known)[:20]) or "leave voice out: the model has only one"
        raise ValueError(f"unknown voice {speaker!r}: {named}")
    settings = SynthesisConfig(
        speaker_id=None if speaker is None else known[speaker],
        length_scale=length_scale * voice.config.length_scale,
    )
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(voice.config.sample_rate)
        for piece in voice.synthesize(text, syn_config=settings):
            sound.writeframes(piece.audio_int16_bytes)
    return base64.b64encode(file.getvalue()).decode()


@functools.cache
def _voice(model: str) -> Any:
    from piper import PiperVoice

    return PiperVoice.load(Path(model))
