"""A diffusion model, in a worker process that loads it once and keeps it.

The only module of the tools that imports torch; nothing imports this one but a worker.
"""

import base64
import functools
import io
from pathlib import Path
from typing import Any

MAX_SEED = 2**63


class Stopped(RuntimeError):
    """Nobody waits for the picture any more."""


def paint(
    loaded: dict[str, Any], options: dict[str, Any], prompt: str, seed: int, stop: str
) -> str:
    """A picture of what the prompt describes, as PNG in base64.

    loaded: which model and how, the arguments of `_pipeline`; options: of the pipeline's call
    (`width`, `num_inference_steps`...). Given up between two steps when a file named `stop`
    appears.
    """
    import torch

    def look(pipeline: Any, step: int, timestep: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
        if Path(stop).exists():
            raise Stopped("the picture was given up")
        return kwargs

    pipeline = _pipeline(**loaded)
    # On the CPU, so that a seed gives the same noise on any device.
    generator = torch.Generator("cpu").manual_seed(seed % MAX_SEED)
    result = pipeline(
        prompt, generator=generator, callback_on_step_end=look, output_type="pil", **options
    )
    if any(getattr(result, "nsfw_content_detected", None) or ()):
        raise RuntimeError("the model's safety checker held the picture back")
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
