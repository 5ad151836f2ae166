"""The distribution that brings this package, and how its extras are installed."""

from pathlib import Path

NAME = "caesura-vllm"
"""Its name on an index, where `caesura` is another project, which has a package `caesura` too."""

__version__ = "0.1.0"

_CLONE = Path(__file__).resolve().parents[2]


def install(*extras: str) -> str:
    """Return the command that installs extras into the environment in which this package is.

    Nothing asks an index for the distribution itself: a clone is named by its path, and an
    installed wheel already is what its name requires.
    """
    base = f"-e '{_CLONE}" if (_CLONE / "pyproject.toml").is_file() else f"'{NAME}"
    return f"pip install {base}[{','.join(extras)}]'"
