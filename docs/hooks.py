"""What `make docs` adds to MkDocs, so that the pages stay plain Markdown, as GitHub shows them.

- Links may lead to files outside of docs/: the site has a page of each such file or folder.
- Headings get the anchors that GitHub gives them.
- A comment `<!-- ::: caesura.Agent -->` becomes what the docstrings say, by mkdocstrings.
- No page asks another host for a script, a style, a font or a picture.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel
from pymdownx.slugs import slugify

ROOT = Path(__file__).parent.parent
DOCS = "docs/"
PAGES = "repository/"
"""Where the site has the files that are not below docs/."""

LINK = re.compile(r"\]\(([^)\s#]+)(#[^)\s]*)?\)")
DIRECTIVE = re.compile(r"^<!-- (::: [\w.]+) -->$", re.MULTILINE)
ROW = re.compile(r"^\|.*$", re.MULTILINE)
CODE = re.compile(r"`[^`]+`")
BESIDE_TABLE = re.compile(r"(?<=-->)\n(?=\|)|(?<=\|)\n(?=<!--)")
FETCHED = re.compile(
    r"""<(?:script|img|source|iframe|link)\b[^>]*\b(?:src|href)=["']?(?:https?:)?//"""
)
MAX_BYTES = 400_000


def on_config(config: Any) -> Any:
    """Let headings have GitHub's anchors."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = slugify(case="lower")
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add a page for each file of the repository that a page names, and for what those name."""
    waiting = {
        target
        for file in files.documentation_pages()
        for target in targets(file.content_string, DOCS + file.src_uri)
    }
    done: set[str] = set()
    while waiting:
        path = waiting.pop()
        uri = site_uri(path)
        if path in done or files.get_file_from_path(uri) is not None:
            continue
        done.add(path)
        text = content(path)
        files.append(File.generated(config, uri, content=text, inclusion=InclusionLevel.NOT_IN_NAV))
        if path.endswith(".md") or (ROOT / path).is_dir():
            waiting.update(targets(text, f"{path}/" if (ROOT / path).is_dir() else path))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    """Let links lead to the site's pages, and docstrings stand where a comment asks for them."""
    here = page.file.src_uri
    source = here.removeprefix(PAGES) if here.startswith(PAGES) else DOCS + here
    if not (ROOT / source).exists():  # the page of a file of code, or of a folder
        source = source.removesuffix(".md") + "/"

    def led(link: re.Match[str]) -> str:
        path = resolved(link[1], source)
        if path is None:
            return link[0]
        uri = os.path.relpath(site_uri(path), os.path.dirname(here))  # noqa: PTH120
        return f"]({uri}{link[2] or ''})"

    text = BESIDE_TABLE.sub("\n\n", LINK.sub(led, markdown))
    return DIRECTIVE.sub(r"\1", ROW.sub(bare_bars, text))


def bare_bars(row: re.Match[str]) -> str:
    """Return the row of a table with the bars within code bare, as Python-Markdown wants them."""
    return CODE.sub(lambda code: code[0].replace("\\|", "|"), row[0])


def on_post_page(output: str, *, page: Any, config: Any) -> str:
    """Refuse a page that would ask another host for a part of itself."""
    found = FETCHED.search(output)
    if found:
        raise PluginError(f"{page.file.src_uri} asks another host: {found[0]}; the site is offline")
    return output


def targets(text: str, source: str) -> Iterator[str]:
    """Yield the files and folders outside of docs/ that the page `source` names."""
    for link in LINK.finditer(text):
        path = resolved(link[1], source)
        if path is not None and site_uri(path).startswith(PAGES):
            yield path


def resolved(target: str, source: str) -> str | None:
    """Return the path from the root of what a link in `source` names, None if there is no such."""
    if ":" in target or target.startswith("/"):
        return None
    path = os.path.normpath(os.path.join(os.path.dirname(source), target))  # noqa: PTH118, PTH120
    if path.startswith("..") or not (ROOT / path).exists():
        return None
    return path


def site_uri(path: str) -> str:
    """Return where the site has a file or a folder of the repository."""
    if path.startswith(DOCS):
        return path.removeprefix(DOCS) + ("/README.md" if (ROOT / path).is_dir() else "")
    return PAGES + path + ("" if path.endswith(".md") else ".md")


def content(path: str) -> str:
    """Return the page of a file or a folder of the repository."""
    full = ROOT / path
    if path.endswith(".md"):
        return full.read_text()
    if full.is_dir():
        names = sorted(each for each in full.iterdir() if each.name[0] not in "._")
        files = [f"- [{each.name}]({each.name})\n" for each in names if each.is_file()]
        folders = [f"- {each.name}/\n" for each in names if each.is_dir()]
        return f"# {path}/\n\n{''.join(files + folders)}"
    if full.stat().st_size > MAX_BYTES:
        raise PluginError(f"{path} has more than {MAX_BYTES} bytes: name it without a link")
    language = {".py": "python", ".ipynb": "json"}.get(full.suffix, full.suffix.lstrip("."))
    return f"# {path}\n\n``````{language}\n{full.read_text().rstrip()}\n``````\n"
