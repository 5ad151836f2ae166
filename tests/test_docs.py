"""The documents name files that exist, and the architecture stays one page."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent
ARCHITECTURE = ROOT / "ARCHITECTURE.md"
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
    ARCHITECTURE,
    *sorted(path for room in ("docs", "deploy") for path in (ROOT / room).rglob("*.md")),
]
MAX_ROW_WORDS = 25
MAX_ARCHITECTURE_WORDS = 1200
MAX_WORDS = 40_000
EVIDENCE = re.compile(r"<!-- evidence: (?!end )\S+ -->.*?<!-- evidence: end -->", re.DOTALL)

LINK = re.compile(r"\]\(([^)\s]+)\)")
QUOTED = re.compile(r"`([^`]+)`")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def tables(page: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the first heading of each row's table, and the row's cells."""
    heading = ""
    for line in page.read_text().splitlines():
        if not line.startswith("|"):
            heading = ""
        elif not heading:
            heading = line.strip("| ").partition("|")[0].strip()
        elif not line.startswith("| ---"):
            yield heading, [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]


def rooms() -> list[list[str]]:
    """Return the rows of the table of rooms."""
    return [cells for heading, cells in tables(ARCHITECTURE) if heading == "room"]


def missing_paths(heading: str, cells: list[str]) -> list[str]:
    """Return the paths in backticks that lead nowhere, from the root or the row's own folder."""
    folder = cells[0].strip("`") if heading == "room" else ""
    missing = []
    for name in QUOTED.findall(" ".join(cells)):
        is_path = "/" in name or name.endswith(".py")
        if is_path and not any((base / name).exists() for base in (ROOT, ROOT / folder)):
            missing.append(name)
    return missing


def test_paths_in_the_tables_of_the_architecture_exist() -> None:
    rows = list(tables(ARCHITECTURE))
    assert {"step", "question", "room"} <= {heading for heading, _ in rows}
    assert [name for row in rows for name in missing_paths(*row)] == []


def test_every_room_is_a_folder() -> None:
    assert [cells[0] for cells in rooms() if not (ROOT / cells[0].strip("`")).is_dir()] == []


def test_rows_of_the_rooms_stay_short() -> None:
    lengths = {cells[0]: len(" ".join(cells).split()) for cells in rooms()}
    assert {room: words for room, words in lengths.items() if words > MAX_ROW_WORDS} == {}


def test_the_architecture_is_one_page() -> None:
    assert len(ARCHITECTURE.read_text().split()) <= MAX_ARCHITECTURE_WORDS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_to_files(page: Path) -> None:
    targets = [link.partition("#")[0] for link in LINK.findall(page.read_text())]
    files = [target for target in targets if target and "://" not in target]
    assert [file for file in files if not (page.parent / file).exists()] == []


def test_the_readme_fits_a_few_screens() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < 120


def test_the_pages_that_are_read_stay_short() -> None:
    """Outside of the reference, without the tables that `make evidence` fills."""
    docs = ROOT / "docs"
    read = [
        page for page in PAGES if docs in page.parents and docs / "reference" not in page.parents
    ]
    texts = [EVIDENCE.sub("", page.read_text()) for page in read]
    assert len(read) > 30
    assert sum(len(text.split()) for text in texts) <= MAX_WORDS


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and the site make them."""
    found: dict[str, int] = {}
    for heading in HEADING.findall(FENCED.sub("", page.read_text())):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
        name = re.sub(r"[^\w\- ]", "", shown).replace(" ", "-")
        found[name] = found.get(name, 0) + 1
    return found.keys() | {
        f"{name}-{number}" for name, times in found.items() for number in range(1, times)
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_to_headings(page: Path) -> None:
    named = [link.partition("#")[::2] for link in LINK.findall(page.read_text()) if "#" in link]
    wrong = []
    for target, anchor in named:
        file = page.parent / target if target else page
        if "://" not in target and file.suffix == ".md" and anchor not in anchors(file):
            wrong.append(f"{target}#{anchor}")
    assert wrong == []


def pages_of(nav: Any) -> Iterator[str]:
    """Yield the pages that a part of the site's navigation names."""
    match nav:
        case str():
            yield nav
        case dict():
            for part in nav.values():
                yield from pages_of(part)
        case list():
            for part in nav:
                yield from pages_of(part)


def test_the_navigation_of_the_site_names_every_page_once() -> None:
    """A page that is missing here belongs into `nav` of mkdocs.yml."""
    listed = list(pages_of(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))
    docs = ROOT / "docs"
    assert sorted(listed) == sorted(
        page.relative_to(docs).as_posix() for page in docs.rglob("*.md")
    )


def test_every_room_of_the_package_is_told_with_what_it_imports() -> None:
    links = {path.name for path in (ROOT / "src" / "caesura").iterdir() if path.is_symlink()}
    text = ARCHITECTURE.read_text()
    linked = re.search(r"symbolic links to the \w+ rooms (.*?), which", text)
    told = re.findall(r"^- (.*) imports? ", text, re.MULTILINE)
    assert linked is not None and set(QUOTED.findall(linked[1])) == links
    assert set(QUOTED.findall(" ".join(told))) >= links
