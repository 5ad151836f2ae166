"""The same functions as `torchvision.transforms.functional`."""

from torchvision.transforms import functional
from torchvision.transforms.functional import *  # noqa: F403

__all__ = functional.__all__
