"""The package indexes that the user's pip is configured for, read through the simple API."""

from __future__ import annotations

import ast
import base64
import json
import ssl
import subprocess
import sys
import urllib.request
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import PurePosixPath
from typing import IO
from urllib.parse import parse_qs, unquote, urljoin, urlsplit, urlunsplit

DEFAULT_INDEX = "https://pypi.org/simple"
# PEP 691, with HTML for the mirrors that know only PEP 503.
ACCEPT = "application/vnd.pypi.simple.v1+json, text/html;q=0.5"
TIMEOUT_S = 60


@dataclass(frozen=True)
class Index:
    """One index; `credentials` stood in its URL, which may be printed without them."""

    url: str
    credentials: str | None = None
    cert: str | None = None

    def open(self, url: str, accept: str = "*/*") -> IO[bytes]:
        """Open a page or file of this index."""
        request = urllib.request.Request(url, headers={"Accept": accept})
        if self.credentials and urlsplit(url).netloc == urlsplit(self.url).netloc:
            token = base64.b64encode(self.credentials.encode()).decode()
            # Unredirected: a redirect to another host must not take the password there.
            request.add_unredirected_header("Authorization", f"Basic {token}")
        context = ssl.create_default_context(cafile=self.cert)
        return urllib.request.urlopen(request, timeout=TIMEOUT_S, context=context)

    def find(self, project: str, file_name: str) -> tuple[str, str | None]:
        """Return a file's URL and sha256; LookupError if the index has no such file."""
        page = f"{self.url.rstrip('/')}/{project}/"
        # A directory served from the disk has no server that would pick its index page.
        url = page + "index.html" if page.startswith("file:") else page
        with self.open(url, ACCEPT) as response:
            is_json = "json" in response.headers.get_content_type()
            text = response.read().decode()
        for link, digest in _json_links(text) if is_json else _html_links(text):
            link = urljoin(page, link)
            if PurePosixPath(unquote(urlsplit(link).path)).name == file_name:
                return link, digest
        raise LookupError(f"no {file_name} there")


def indexes() -> list[Index]:
    """Return pip's index and then its extra ones, as pip's configuration and environment say."""
    options = _pip_options()
    urls = [options.get("index-url", DEFAULT_INDEX), *options.get("extra-index-url", "").split()]
    return [_index(url, options.get("cert")) for url in urls]


def _index(url: str, cert: str | None) -> Index:
    parts = urlsplit(url)
    credentials, at, host = parts.netloc.rpartition("@")
    return Index(
        urlunsplit(parts._replace(netloc=host)), unquote(credentials) if at else None, cert
    )


def _pip_options() -> dict[str, str]:
    command = [sys.executable, "-m", "pip", "config", "list"]
    listing = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    found: dict[str, dict[str, str]] = {"global": {}, ":env:": {}}
    for line in listing.splitlines():
        name, _, value = line.partition("=")
        section, _, option = name.partition(".")
        if section in found:
            found[section][option] = str(ast.literal_eval(value))
    return found["global"] | found[":env:"]  # the environment wins, as it does for pip


def _json_links(text: str) -> list[tuple[str, str | None]]:
    return [(file["url"], file["hashes"].get("sha256")) for file in json.loads(text)["files"]]


def _html_links(text: str) -> list[tuple[str, str | None]]:
    links: list[tuple[str, str | None]] = []

    class Anchors(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            href = dict(attrs).get("href")
            if tag == "a" and href:
                link, _, fragment = href.partition("#")
                links.append((link, parse_qs(fragment).get("sha256", [None])[0]))

    Anchors().feed(text)
    return links
