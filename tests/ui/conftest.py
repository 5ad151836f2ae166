"""A browser, servers of recordings, and recordings exported to a file."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest

from caesura.runtime.recording.entries import Entry, Recording
from caesura.runtime.recording.files import write_html
from caesura.tools.artifacts import ArtifactStore
from tests.kit.browser import chromium, open_page
from tests.ui.serving import serving

__all__ = ["chromium", "open_page", "serving"]


@pytest.fixture
def exported(tmp_path: Path) -> Callable[..., str]:
    """Write recordings into one HTML file; its address, behind which a view may be named."""

    def write(
        *held: tuple[Recording, Iterable[Entry]], artifacts: Sequence[ArtifactStore] = ()
    ) -> str:
        path = tmp_path / "export.html"
        write_html(held, path, artifacts)
        return path.as_uri()

    return write
