"""The generate_image tool: pictures by a diffusion model, in a worker or behind a service."""

import asyncio
import base64
import binascii
import os
import secrets
import tempfile
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from caesura.tools.endpoint import Endpoint
from caesura.tools.picture.drawing import PictureError, save_picture
from caesura.tools.result import Output
from caesura.tools.services import Services, SetupError, ToolSettings, require
from caesura.tools.tool import Tool
from caesura.tools.worker import WorkerDied, WorkerFailed, WorkerPool

GRACE_SECONDS = 10.0
"""How long a cancelled picture may take to reach its next step before the process is killed."""
_PASSED = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "HF_HOME", "HF_HUB_CACHE")
_PASSED_TO_DOWNLOAD = ("HF_TOKEN", "HF_ENDPOINT", "HTTPS_PROXY", "SSL_CERT_FILE")


class Diffusion:
    """One model in one worker process, which is loaded at the first picture and kept.

    loaded: the model and how to load it, as `child.paint` takes it. A cancelled picture stops
    between two steps, since loading the model again takes long. The process is killed only if it
    does not stop.
    """

    def __init__(self, loaded: dict[str, Any]) -> None:
        self._loaded = loaded
        self._stops = tempfile.TemporaryDirectory(prefix="caesura-", ignore_cleanup_errors=True)
        self._numbers = count()
        self._given_up: set[asyncio.Task[None]] = set()
        self._pool = WorkerPool(
            "caesura.tools.picture.diffusion_child",
            environment=_environment(download=loaded["download"]),
            idle_seconds=None,
        )

    async def paint(self, prompt: str, seed: int, options: dict[str, Any]) -> bytes:
        """Return the picture as PNG. options: of the pipeline's call. Raises PictureError."""
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
    """Ask the process to stop; if that takes too long, cancel the call, which kills it."""
    await asyncio.to_thread(stop.touch)
    if not (await asyncio.wait([call], timeout=GRACE_SECONDS))[0]:
        call.cancel()
        await asyncio.wait([call])
    if not call.cancelled():
        call.exception()  # marks it as retrieved; its result is not needed
    await asyncio.to_thread(stop.unlink, missing_ok=True)


def _environment(*, download: bool) -> dict[str, str]:
    """Return the variables that the process needs besides those of every worker."""
    passed = _PASSED + (_PASSED_TO_DOWNLOAD if download else ())
    known = {name: os.environ[name] for name in passed if name in os.environ}
    return known if download else {**known, "HF_HUB_OFFLINE": "1"}


TIMEOUT_SECONDS = 300.0
MIN_SIDE = 64
"""In pixels."""
STEP = 8
"""Sides are multiples of this many pixels, the size of one latent."""
MAX_PROMPT_CHARACTERS = 4_000
_SIDE = {"type": "integer", "description": "In pixels."}
PARAMETERS = {
    "type": "object",
    "properties": {
        "prompt": {
            "type": "string",
            "minLength": 1,
            "maxLength": MAX_PROMPT_CHARACTERS,
            "description": "What the picture shows.",
        },
        "width": _SIDE,
        "height": _SIDE,
        "seed": {"type": "integer", "description": "The same seed makes the same picture."},
    },
    "required": ["prompt"],
    "additionalProperties": False,
}
_NO_BACKEND = (
    'generate_image has no back end: in [tools.generate_image] set backend = "diffusers" and '
    'directory = a model, or backend = "endpoint" and url = the address of a service up to /v1'
)

Paint = Callable[[str, int, int, int | None], Awaitable[bytes]]
"""Takes prompt, width, height and seed; returns a picture's bytes."""


class Settings(ToolSettings):
    """Settings of `[tools.generate_image]`."""

    backend: Literal["diffusers", "endpoint"] | None = Field(None, description="the back end")
    directory: Path | None = Field(None, description="diffusers: the model's directory")
    model: str | None = Field(
        None, description="diffusers: a Hugging Face id; endpoint: the name of the service's model"
    )
    width: int = Field(512, ge=MIN_SIDE, description="default width, in pixels")
    height: int = Field(512, ge=MIN_SIDE, description="default height, in pixels")
    max_side: int = Field(1_024, ge=MIN_SIDE, le=4_096, description="the longest side, in pixels")
    steps: int = Field(25, ge=1, le=1_000, description="diffusers: denoising steps")
    guidance_scale: float | None = Field(
        None, ge=0, description="diffusers: guidance; default: the model's own"
    )
    device: str = Field("auto", description="diffusers: cpu, cuda, cuda:1, mps")
    dtype: Literal["auto", "float32", "float16", "bfloat16"] = Field(
        "auto", description="diffusers: number type; auto: float16, except on a CPU"
    )
    cpu_threads: int = Field(1, ge=1, description="diffusers: threads for a model on the CPU")
    allow_download: bool = Field(False, description="diffusers: download a Hugging Face id")
    url: str | None = Field(None, description="endpoint: the service's address, up to /v1")
    api_key_env: str | None = Field(None, description="endpoint: the variable with its key")


def make(settings: Settings, services: Services) -> Tool:
    """Return the tool, for `Toolset`. Raises SetupError without a working back end."""
    if settings.backend is None:
        raise SetupError(_NO_BACKEND)
    backend = _diffusers if settings.backend == "diffusers" else _endpoint
    paint = backend(settings, services)

    async def generate_image(
        prompt: str, width: int | None = None, height: int | None = None, seed: int | None = None
    ) -> Output:
        width = _side(width or settings.width, settings.max_side)
        height = _side(height or settings.height, settings.max_side)
        return await save_picture(services.artifacts, await paint(prompt, width, height, seed))

    return Tool.from_schema(
        "generate_image",
        "Paint a picture of what a text describes.",
        PARAMETERS,
        generate_image,
        timeout_seconds=TIMEOUT_SECONDS,
        safe_to_repeat=True,
        concurrency=1 if settings.backend == "diffusers" else None,
        expected_seconds=20.0,
    )


def _side(pixels: int, most: int) -> int:
    return max(MIN_SIDE, min(pixels, most) // STEP * STEP)


def _diffusers(settings: Settings, services: Services) -> Paint:
    require("diffusers", "diffusion", "generate_image")
    require("torch", "cpu", "generate_image")
    model = settings.model
    if settings.directory is not None:
        model = str(settings.directory.expanduser())
        if not Path(model, "model_index.json").is_file():
            raise SetupError(
                f"[tools.generate_image] directory: {model} has no model_index.json; give the "
                "directory of a model that diffusers saved"
            )
    if model is None:
        raise SetupError(_NO_BACKEND)
    loaded = {
        "model": model,
        "device": settings.device,
        "dtype": settings.dtype,
        "download": settings.allow_download,
        "threads": settings.cpu_threads,
    }
    diffusion = Diffusion(loaded)
    services.at_end(diffusion.aclose)

    async def paint(prompt: str, width: int, height: int, seed: int | None) -> bytes:
        options: dict[str, Any] = {
            "width": width,
            "height": height,
            "num_inference_steps": settings.steps,
        }
        if settings.guidance_scale is not None:
            options["guidance_scale"] = settings.guidance_scale
        chosen = secrets.randbits(32) if seed is None else seed
        return await diffusion.paint(prompt, chosen, options)

    return paint


def _endpoint(settings: Settings, services: Services) -> Paint:
    endpoint = Endpoint(
        "generate_image",
        settings.url,
        settings.api_key_env,
        services,
        timeout_seconds=settings.timeout_seconds or TIMEOUT_SECONDS,
    )

    async def paint(prompt: str, width: int, height: int, seed: int | None) -> bytes:
        asked = {
            "model": settings.model,
            "prompt": prompt,
            "n": 1,
            "size": f"{width}x{height}",
            "seed": seed,
        }
        body = {name: value for name, value in asked.items() if value is not None}
        match await endpoint.json("/images/generations", body):
            case {"data": [{"b64_json": str(text)}, *_]}:
                try:
                    return await asyncio.to_thread(base64.b64decode, text, validate=True)
                except binascii.Error:
                    raise PictureError("the service's picture is not valid base64") from None
            case {"data": [{"url": str(url)}, *_]}:
                return (await endpoint.file_at(url)).data
        raise PictureError("the service answered without a picture")

    return paint
