"""Files that the server sends: the page at `/ui/`, and what tools made, at `/artifacts/{name}`.

The page shows recordings. Its own files hold no data and need no key.
"""

import asyncio
from collections.abc import Mapping
from functools import cache

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from caesura.runtime.errors import UsageError
from caesura.runtime.recording.files import BuiltPage, built
from caesura.runtime.server.http.errors import ApiError
from caesura.runtime.server.http.packing import File
from caesura.runtime.server.keys.access import Door
from caesura.runtime.server.keys.key import Reach
from caesura.runtime.server.keys.rules import Role
from caesura.runtime.server.keys.sender import sender_of
from caesura.tools.artifacts import URL_PREFIX, Artifact, ArtifactStore

_YEAR_SECONDS = 365 * 24 * 3600
_ARTIFACT_HEADERS = {
    # A file's name is the digest of its content, so the content never changes.
    # Shared caches must not keep the file, since the route may need a key.
    "Cache-Control": f"private, max-age={_YEAR_SECONDS}, immutable",
    "Content-Disposition": "inline",
    # An SVG may hold scripts, which must not run.
    "Content-Security-Policy": "sandbox; default-src 'none'",
    "X-Content-Type-Options": "nosniff",
}


def artifact_routes(store: ArtifactStore, door: Door) -> list[Route]:
    """Return the route that serves the store's files: to a client those that its key has made."""

    def fetched(name: str, reach: Reach) -> Artifact | None:
        found = store.get(name)
        seen = found is None or reach is None or store.belongs_to(found, reach)
        return found if seen else None

    async def artifact(request: Request) -> Response:
        reach = door.reach(sender_of(request), Role.VIEW)
        found = await asyncio.to_thread(fetched, request.path_params["name"], reach)
        if found is None:
            message = "There is no such file; the server deletes old files to make room for new."
            raise ApiError(404, message, code="artifact_not_found")
        # The name is the digest of the content.
        headers = {**_ARTIFACT_HEADERS, "ETag": f'"{found.path.name}"'}
        if headers["ETag"] in request.headers.get("If-None-Match", ""):
            return Response(status_code=304, headers=headers)
        media_type = found.media_type
        if media_type.startswith("text/"):
            media_type += "; charset=utf-8"
        return FileResponse(found.path, headers={**headers, "Content-Type": media_type})

    return [Route(URL_PREFIX + "{name:path}", artifact)]


_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "media-src blob:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
_PAGE_HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": _POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def page_routes() -> list[Route]:
    """Return the page's routes."""
    return [
        Route("/", _from_the_root),
        Route("/ui", _to_the_page),
        Route("/ui/", _index),
        Route("/ui/ui.js", _script),
        Route("/ui/ui.css", _styles),
    ]


async def _from_the_root(request: Request) -> Response:
    # Not for ever: another server may stand here tomorrow.
    return Response(status_code=307, headers={"Location": "ui/"})


async def _to_the_page(request: Request) -> Response:
    # A relative address works under a proxy's path prefix too. The query is kept.
    query = f"?{request.url.query}" if request.url.query else ""
    return Response(status_code=308, headers={"Location": f"ui/{query}"})


async def _index(request: Request) -> Response:
    return (await _page())["html"].answer(request)


async def _script(request: Request) -> Response:
    return (await _page())["script"].answer(request)


async def _styles(request: Request) -> Response:
    return (await _page())["styles"].answer(request)


@cache
def _files(page: BuiltPage) -> Mapping[str, File]:
    return {
        "html": File(page.html, "text/html", _PAGE_HEADERS),
        "script": File(page.script, "text/javascript", _PAGE_HEADERS),
        "styles": File(page.styles, "text/css", _PAGE_HEADERS),
    }


async def _page() -> Mapping[str, File]:
    try:
        return await asyncio.to_thread(lambda: _files(built()))
    except UsageError as error:
        message = str(error)
        raise ApiError(404, f"{message[:1].upper()}{message[1:]}.", code="not_built") from None
