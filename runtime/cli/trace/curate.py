"""The implementation of `caesura trace name`, `note`, `pin`, `unpin` and `rm`."""

from collections.abc import Sequence
from pathlib import Path

from caesura.runtime.cli.show import plain
from caesura.runtime.recording import catalog


def name(store: Path, wanted: str, title: str) -> None:
    """Give a recording another title; raise `UsageError` on failure."""
    changed = catalog.change(store, _number(store, wanted), title=title)
    print(f"recording {changed.id} is called {plain(changed.title)}")


def note(store: Path, wanted: str, text: str | None) -> None:
    """Set a recording's note, or print it; raise `UsageError` on failure."""
    if text is None:
        print(plain(catalog.find(store, wanted).note))
        return
    changed = catalog.change(store, _number(store, wanted), note=text)
    print(f"the note of recording {changed.id} is {'set' if changed.note else 'removed'}")


def pin(store: Path, wanted: Sequence[str], pinned: bool) -> None:
    """Pin or unpin recordings; raise `UsageError` on failure."""
    for number in [_number(store, each) for each in wanted]:
        catalog.change(store, number, pinned=pinned)
        print(f"recording {number} is {'pinned' if pinned else 'not pinned any more'}")


def delete(store: Path, wanted: Sequence[str]) -> None:
    """Delete recordings; raise `UsageError` on failure, before any of them for an unknown one."""
    for number in [_number(store, each) for each in wanted]:
        catalog.delete(store, number)
        print(f"recording {number} is deleted")


def _number(store: Path, wanted: str) -> int:
    return int(catalog.find(store, wanted).id)
