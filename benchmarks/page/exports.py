"""Recordings of many requests, written into files as `caesura trace export` does."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.page.crowd import Crowd
from benchmarks.page.life import BLOCK_TOKENS, KV_BLOCKS, MODEL
from benchmarks.page.pages import Built
from caesura.runtime.recording.entries import Recording
from caesura.runtime.recording.files import write

BEGAN = 1_790_000_000.0
CONCURRENT = 60
PIECE_CHARACTERS = 2**20


@dataclass(frozen=True, slots=True)
class Size:
    """A recording of so many requests; `content` are the bytes of each answer of the model."""

    name: str
    requests: int
    content: int = 0


SIZES = (
    Size("2,700 requests", 2_700),
    Size("30,000 requests", 30_000),
    Size("130,000 requests", 130_000),
    Size("600 MB of JSON", 30_000, 8_500),
)


@dataclass(frozen=True, slots=True)
class Written:
    """A recording as JSON, before a page is put around it."""

    size: Size
    path: Path
    entries: int

    @property
    def megabytes(self) -> float:
        """Return the size of the JSON."""
        return self.path.stat().st_size / 1e6


def recorded(size: Size, folder: Path) -> Written:
    """Write a recording of this size as JSON."""
    path = folder / f"{size.requests}-{size.content}.json"
    crowd = Crowd(min(CONCURRENT, size.requests), BEGAN, content=size.content)
    about = {"model": MODEL, "block_size": BLOCK_TOKENS, "total_blocks": KV_BLOCKS}
    recording = Recording(1, size.name, "serve", BEGAN, content=size.content > 0, about=about)
    entries = (one for tick in crowd.sessions(size.requests) for one in tick)
    done = write("json", [(recording, entries)], path)
    return Written(size, path, done.entries)


def exported(written: Written, built: Built, folder: Path) -> Path:
    """Put a page around a recording; return the HTML file."""
    path = folder / f"{built.revision.replace(' ', '-')}-{written.path.stem}.html"
    with path.open("w", encoding="utf-8") as file:
        file.writelines(built.page.standalone(_pieces(written.path)))
    return path


def _pieces(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8") as file:
        while piece := file.read(PIECE_CHARACTERS):
            yield piece
