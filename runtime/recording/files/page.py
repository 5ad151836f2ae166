"""The built page that shows recordings: three files, or one file that holds everything."""

import base64
import hashlib
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Self

from caesura.runtime.errors import UsageError

NAMES = ("index.html", "ui.js", "ui.css")
NOT_BUILT = "the page was not built: run `npm ci` and `npm run build` in the folder ui"
PIECE_BYTES = 3 * 2**16
"""A multiple of three bytes, so that the base64 texts of pieces can be concatenated."""

_SCRIPT = re.compile(r"<script\b[^>]*\bsrc=[^>]*></script>\s*")
_STYLES = re.compile(r"<link\b[^>]*\brel=\"?stylesheet\"?[^>]*>\s*")
_POLICY = re.compile(r"<meta\b[^>]*Content-Security-Policy[^>]*>\s*", re.IGNORECASE)
_TAG = re.compile(r"<(?=/?script)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Page:
    """The page's three files."""

    html: str
    script: str
    styles: str

    @classmethod
    def load(cls) -> Self:
        """Return the page from its files. Raises `UsageError` if the page was not built."""
        # The path starts at the package, since a development checkout may link to this module.
        static = files("caesura").joinpath("runtime", "static")
        try:
            html, script, styles = (static.joinpath(name).read_text("utf-8") for name in NAMES)
        except OSError:
            raise UsageError(NOT_BUILT) from None
        return cls(html, script, styles)

    def standalone(self, data: Iterable[str]) -> Iterator[str]:
        """Yield the pieces of one HTML file that holds the page and data, and loads nothing.

        `data` is the JSON text that `ui/src/sources/embedded.ts` reads.
        """
        # Escaped, a `</script>` in a JavaScript string does not end the HTML tag.
        script = _TAG.sub(r"\\x3c", self.script)
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        policy = (
            f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline';"
            " img-src data: blob:; media-src data: blob:; base-uri 'none'; form-action 'none'"
        )
        html = _POLICY.sub("", _STYLES.sub("", _SCRIPT.sub("", self.html)))
        head, found, tail = html.partition("<head>")
        body, end, rest = tail.rpartition("</body>")
        if not found or not end:
            raise UsageError(NOT_BUILT)
        yield f'{head}{found}\n<meta http-equiv="Content-Security-Policy" content="{policy}">'
        yield f"\n<style>{self.styles}</style>{body}"
        yield '<script type="application/octet-stream" id="caesura-data">'
        yield from packed(data)
        yield f'</script>\n<script type="module">{script}</script>\n{end}{rest}'


@cache
def built() -> Page:
    """Return the page, which is read once. Raises `UsageError` if it was not built."""
    return Page.load()


def packed(texts: Iterable[str]) -> Iterator[str]:
    """Yield texts as gzip in base64, in pieces; the same text gives the same output."""
    packer = zlib.compressobj(6, wbits=31)
    left = b""
    for text in texts:
        left += packer.compress(text.encode())
        if len(left) >= PIECE_BYTES:
            whole = len(left) // 3 * 3
            yield base64.b64encode(left[:whole]).decode()
            left = left[whole:]
    yield base64.b64encode(left + packer.flush()).decode()
