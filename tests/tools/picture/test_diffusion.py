"""generate_image with diffusers: a real pipeline of random weights, in its real process."""

import asyncio
import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from caesura.tools.picture.diffusion import Diffusion
from caesura.tools.picture.drawing import PictureError, picture_of

pytest.importorskip("diffusers")
pytestmark = pytest.mark.slow
SAVED = re.compile(r"Saved as /artifacts/[0-9a-f]{24}\.png: PNG picture, (\d+) x (\d+)\.")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tiny") / "model"
    maker = Path(__file__).with_name("tiny_diffusion.py")
    subprocess.run([sys.executable, str(maker), str(directory)], check=True, capture_output=True)
    return directory


async def test_pictures(using, model):
    call = await using("generate_image", backend="diffusers", directory=str(model), steps=2)
    first = await call(prompt="a red bird", width=64, height=72, seed=7)
    assert SAVED.fullmatch(first.content).groups() == ("64", "72"), first.content
    data = first.artifacts[0].path.read_bytes()
    assert struct.unpack_from(">II", data, 16) == (64, 72)
    again = await call(prompt="a red bird", width=64, height=72, seed=7)
    other = await call(prompt="a red bird", width=64, height=72, seed=8)
    huge = await call(prompt="a red bird", width=64, height=72, seed=-(10**30))
    assert first.artifacts == again.artifacts
    assert first.artifacts != other.artifacts
    assert huge.error is None, huge.content


def loaded(model):
    return {
        "model": str(model),
        "device": "cpu",
        "dtype": "float32",
        "download": False,
        "threads": 1,
    }


SMALL = {"width": 64, "height": 64}


async def test_a_picture_that_is_given_up_leaves_the_model_loaded(model):
    painter = Diffusion(loaded(model))
    try:
        await painter.paint("a", 1, SMALL | {"num_inference_steps": 1})
        (worker,) = painter._pool._alive
        endless = asyncio.ensure_future(painter.paint("a", 1, SMALL | {"num_inference_steps": 900}))
        await asyncio.sleep(0.5)
        assert not endless.done()
        endless.cancel()
        with pytest.raises(asyncio.CancelledError):
            await endless
        data = await painter.paint("a", 1, SMALL | {"num_inference_steps": 1})
        assert picture_of(data).width == 64
        assert painter._pool._alive == {worker}
    finally:
        await painter.aclose()
    assert not os.path.exists(painter._stops.name)  # noqa: ASYNC240, PTH110


async def test_a_picture_that_cannot_be_given_up_is_killed(model, monkeypatch):
    monkeypatch.setattr("caesura.tools.picture.diffusion.GRACE_SECONDS", 0.0)
    painter = Diffusion(loaded(model))
    try:
        endless = asyncio.ensure_future(painter.paint("a", 1, SMALL | {"num_inference_steps": 900}))
        await asyncio.sleep(0.5)  # it still imports torch: nothing looks whether to stop
        (worker,) = painter._pool._alive
        endless.cancel()
        with pytest.raises(asyncio.CancelledError):
            await endless
        await asyncio.wait(painter._given_up)
        assert not worker.is_alive
    finally:
        await painter.aclose()


async def test_a_model_that_is_none(tmp_path):
    (tmp_path / "model_index.json").write_text("{}")
    painter = Diffusion(loaded(tmp_path))
    try:
        with pytest.raises(PictureError, match="the model made no picture"):
            await painter.paint("a", 1, SMALL)
    finally:
        await painter.aclose()
