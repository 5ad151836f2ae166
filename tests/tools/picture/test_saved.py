"""What kind of picture some bytes are."""

import io
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caesura.tools.artifacts import ArtifactStore
from caesura.tools.picture import drawing
from caesura.tools.picture.drawing import Picture, PictureError, picture_of, save_picture

PIL = pytest.importorskip("PIL.Image")


def encoded(format, **options):
    file = io.BytesIO()
    PIL.new("RGB", (123, 45), "red").save(file, format, **options)
    return file.getvalue()


@pytest.mark.parametrize(
    ("format", "options"),
    [
        ("PNG", {}),
        ("JPEG", {}),
        ("JPEG", {"progressive": True, "comment": b"x" * 300}),
        ("WebP", {}),
        ("WebP", {"lossless": True}),
        ("WebP", {"exif": b"Exif\0\0" + b"x" * 40}),
    ],
)
def test_formats(format, options):
    picture = picture_of(encoded(format, **options))
    assert (picture.format, picture.width, picture.height) == (format, 123, 45)


@pytest.mark.parametrize("data", [b"", b"<svg/>", b"GIF89a", b"\x89PNG\r\n\x1a\n" + b"x" * 40])
def test_other_files_are_refused(data):
    with pytest.raises(PictureError):
        picture_of(data)


HEADS = [
    b"\x89PNG\r\n\x1a\n....IHDR",
    b"\xff\xd8\xff\xe0",
    b"RIFF....WEBPVP8 ",
    b"RIFF....WEBPVP8X",
]


@given(st.sampled_from([b"", *HEADS]), st.binary(max_size=40))
def test_any_bytes_are_a_picture_or_refused(head, rest):
    try:
        assert isinstance(picture_of(head + rest), Picture)
    except PictureError as error:
        assert str(error)


async def test_the_sentence(tmp_path):
    output = await save_picture(ArtifactStore(tmp_path), encoded("JPEG"))
    (artifact,) = output.artifacts
    assert output.text == f"Saved as /artifacts/{artifact.name}: JPEG picture, 123 x 45."
    assert artifact.name.endswith(".jpg")


async def test_a_picture_is_looked_at_beside_the_event_loop(tmp_path, monkeypatch):
    threads = []

    def look(data: bytes) -> Picture:
        threads.append(threading.get_ident())
        return picture_of(data)

    monkeypatch.setattr(drawing, "picture_of", look)
    output = await save_picture(ArtifactStore(tmp_path), encoded("PNG"))
    assert "PNG picture, 123 x 45" in output.text
    assert threading.get_ident() not in threads
