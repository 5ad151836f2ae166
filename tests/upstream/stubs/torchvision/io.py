"""What `transformers.image_utils` imports; no test decodes a file."""

from enum import Enum


class ImageReadMode(Enum):
    """The one mode that transformers names."""

    RGB = "RGB"


def decode_image(*args: object, **kwargs: object) -> None:
    """Refuse: decoding a file needs the real torchvision."""
    raise NotImplementedError("the torchvision stub decodes no image")
