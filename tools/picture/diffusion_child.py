"""A diffusion model in a worker process, loaded once.

This is the only module of the tools that imports torch; only a worker imports it.
"""

import base64
import functools
import io
from pathlib import Path
from typing import Any

MAX_SEED = 2**63


class Stopped(RuntimeError):
    """The picture was cancelled."""


def paint(
    loaded: dict[str, Any], options: dict[str, Any], prompt: str, seed: int, stop: str
) -> str:
    """Return a picture for the prompt, as PNG in base64.

    loaded: the model and how to load it, the arguments of `_pipeline`. options: arguments of the
    pipeline's call (`width`, `num_inference_steps`...). Stops between two steps when a file named
    `stop` appears.
    """
    import torch

    def look(pipeline: Any, step: int, timestep: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
        if Path(stop).exists():
            raise Stopped("the picture was cancelled")
        return kwargs

    pipeline = _pipeline(**loaded)
    # The generator is on the CPU, so that a seed gives the same noise on any device.
    generator = torch.Generator("cpu").manual_seed(seed % MAX_SEED)
    result = pipeline(
        prompt, generator=generator, callback_on_step_end=look, output_type="pil", **options
    )
    if any(getattr(result, "nsfw_content_detected", None) or ()):
        raise RuntimeError("the model's safety checker withheld the picture")
    file = io.BytesIO()
    result.images[0].save(file, format="PNG")
    return base64.b64encode(file.getvalue()).decode()


@functools.cache
def _pipeline(model: str, device: str, dtype: str, download: bool, threads: int) -> Any:
    import diffusers
    import torch

    torch.set_num_threads(threads)
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if dtype == "auto":
        dtype = "float32" if device == "cpu" else "float16"
    painter: Any = diffusers.AutoPipelineForText2Image
    pipeline = painter.from_pretrained(
        model, torch_dtype=getattr(torch, dtype), local_files_only=not download
    ).to(device)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline
