"""Interpolation modes, and where transformers looks for the operations."""

from enum import Enum


class InterpolationMode(Enum):
    """The modes that transformers maps Pillow's resampling filters to."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"
