"""The image operations that a CLIP image processor uses, on channels-first tensors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch.nn.functional import interpolate, pad

from . import InterpolationMode

__all__ = ["InterpolationMode", "crop", "normalize", "pad", "pil_to_tensor", "resize"]


def pil_to_tensor(image: object) -> torch.Tensor:
    """Give a Pillow image's pixels as (channels, height, width)."""
    pixels = np.array(image)
    pixels = pixels[:, :, None] if pixels.ndim == 2 else pixels
    return torch.from_numpy(pixels).permute(2, 0, 1)


def resize(image: torch.Tensor, size: Sequence[int], **kwargs: object) -> torch.Tensor:
    """Resize to (height, width); every interpolation mode is bilinear here."""
    batch = image if image.ndim == 4 else image[None]
    out = interpolate(batch.float(), size=tuple(size), mode="bilinear").to(image.dtype)
    return out if image.ndim == 4 else out[0]


def crop(image: torch.Tensor, top: int, left: int, height: int, width: int) -> torch.Tensor:
    """Cut out a rectangle that lies within the image."""
    return image[..., top : top + height, left : left + width]


def normalize(
    image: torch.Tensor, mean: Sequence[float], std: Sequence[float], inplace: bool = False
) -> torch.Tensor:
    """Subtract the channels' means and divide by their deviations."""
    centre, scale = (torch.as_tensor(v, dtype=image.dtype)[:, None, None] for v in (mean, std))
    return (image - centre) / scale
