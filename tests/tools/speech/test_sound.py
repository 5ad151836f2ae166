"""How long WAV files last, and what is no WAV file."""

import io
import struct
import wave

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caesura.tools.artifacts import ArtifactStore
from caesura.tools.speech.speak import SpeechError, measured, save_sound


def recorded(frames=11_025, rate=22_050, channels=1):
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(channels)
        sound.setsampwidth(2)
        sound.setframerate(rate)
        sound.writeframes(b"\1\2" * channels * frames)
    return file.getvalue()


@pytest.mark.parametrize(
    ("frames", "rate", "channels", "seconds"),
    [(11_025, 22_050, 1, 0.5), (48_000, 24_000, 1, 2.0), (44_100, 44_100, 2, 1.0)],
)
def test_how_long_it_lasts(frames, rate, channels, seconds):
    data = recorded(frames, rate, channels)
    assert measured(data) == (data, seconds)


def test_lengths_that_were_not_known_when_they_were_written():
    data = recorded()
    streamed = bytearray(data)
    struct.pack_into("<I", streamed, 4, 0xFFFFFFFF)
    struct.pack_into("<I", streamed, data.index(b"data") + 4, 0x7FFFF000)
    assert measured(bytes(streamed)) == (data, 0.5)


def test_other_chunks_are_passed_over():
    data = recorded()
    more = data[:12] + b"LIST" + struct.pack("<I", 3) + b"abc\0" + data[12:]
    fixed, seconds = measured(more)
    assert seconds == 0.5
    with wave.open(io.BytesIO(fixed)) as sound:
        assert sound.getnframes() == 11_025


@pytest.mark.parametrize("data", [b"", b"ID3", recorded(0), recorded()[:40], b"RIFF....WAVE"])
def test_what_is_no_sound(data):
    with pytest.raises(SpeechError):
        measured(data)


@given(st.binary(max_size=80))
def test_any_bytes_are_measured_or_refused(rest):
    try:
        data, seconds = measured(b"RIFF....WAVE" + rest)
    except SpeechError:
        return
    assert seconds > 0
    assert len(data) == len(rest) + 12


async def test_the_sentence(tmp_path):
    output = await save_sound(ArtifactStore(tmp_path), recorded(50_000))
    (artifact,) = output.artifacts
    assert output.text == f"Saved as /artifacts/{artifact.name}: WAV sound, 2.3 s."
    assert artifact.media_type == "audio/wav"
