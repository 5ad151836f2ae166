"""What the page costs the browser: `python -m benchmarks.page --before 874755e`.

Two series. `live`: a server with 10,000 former sessions and 60 requests at once; frames of every
view. `files`: exports of several sizes; loading, zooming, dragging, searching, and every view. With
`--before` each is measured with the page of that revision too, in turn (A B A B), since the machine
may be shared. Prints Markdown.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.page.exports import SIZES, exported, recorded
from benchmarks.page.live import Seen, crowded, watch
from benchmarks.page.opened import Opened, open_file
from benchmarks.page.pages import WORKING_TREE, Built, page_of
from benchmarks.page.tab import chromium
from benchmarks.page.tables import live_table, load_line, opened_table


async def live(pages: Sequence[Built], given: argparse.Namespace) -> list[Seen]:
    """Measure every view of every page, in turn."""
    seen = [Seen() for _ in pages]
    async with (
        crowded(pages, given.sessions, given.concurrent) as (urls, sessions),
        chromium() as browser,
    ):
        tell(f"{sessions} sessions have ended, {given.concurrent} requests at once")
        for turn in range(given.rounds):
            for built, url, figures in zip(pages, urls, seen, strict=True):
                await watch(browser, url, given.seconds, figures, given.views)
                tell(f"round {turn + 1}: {built.revision}")
    return seen


async def files(
    pages: Sequence[Built], given: argparse.Namespace, folder: Path
) -> list[tuple[str, list[list[Opened]]]]:
    """Open every file with every page, in turn."""
    found = []
    for size in (one for one in SIZES if given.most is None or one.requests <= given.most):
        written = recorded(size, folder)
        told = f"{size.name}: {written.entries:,} entries, {written.megabytes:.0f} MB"
        paths = [exported(written, built, folder) for built in pages]
        written.path.unlink()
        tell(f"{told}, {paths[0].stat().st_size / 1e6:.1f} MB as a page")
        openings: list[list[Opened]] = [[] for _ in pages]
        for _ in range(given.rounds if size.requests < 100_000 and not size.content else 1):
            for built, path, into in zip(pages, paths, openings, strict=True):
                async with chromium() as browser:
                    into.append(await open_file(browser, path))
                tell(f"{built.revision}: {into[-1]}")
        for path in paths:
            path.unlink()
        found.append((told, openings))
    return found


def tell(text: str) -> None:
    """Say how far it is, beside the tables."""
    print(text, file=sys.stderr, flush=True)


async def measure(given: argparse.Namespace, folder: Path) -> None:
    """Measure what was asked for, and print it."""
    revisions = [given.before, given.after] if given.before else [given.after]
    pages = [page_of(revision, folder) for revision in revisions]
    print(" → ".join(f"`{one.revision}` ({one.kilobytes:.0f} kB)" for one in pages))
    kept: dict[str, object] = {}
    if given.series != "files":
        seen = await live(pages, given)
        first = seen[0] if given.before else Seen()
        print(f"\n{live_table(first, seen[-1])}\n\n{load_line(first, seen[-1])}")
        kept["live"] = [asdict(one) for one in seen]
    if given.series != "live":
        found = await files(pages, given, folder)
        rows = [(name, each[0] if given.before else [], each[-1]) for name, each in found]
        print(f"\n{opened_table(rows)}")
        kept["files"] = [(name, [[asdict(o) for o in one] for one in each]) for name, each in found]
    if given.keep:
        given.keep.write_text(json.dumps(kept, indent=1))


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", help="a revision to compare with; none: only the page as it is")
    parser.add_argument(
        "--after", default=WORKING_TREE, help="a revision (the working tree's page)"
    )
    parser.add_argument("--series", choices=["live", "files", "both"], default="both")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each page")
    parser.add_argument("--seconds", type=float, default=8.0, help="seconds of frames in a view")
    parser.add_argument("--sessions", type=int, default=10_000, help="sessions that have ended")
    parser.add_argument("--concurrent", type=int, default=60, help="requests at once")
    parser.add_argument("--views", nargs="*", default=(), help="only these views of `live`")
    parser.add_argument("--most", type=int, help="only files of at most so many requests")
    parser.add_argument("--keep", type=Path, metavar="FILE.json", help="keep all figures there")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(given, Path(folder)))


if __name__ == "__main__":
    main()
