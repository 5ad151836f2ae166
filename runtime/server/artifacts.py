"""`GET /artifacts/{name}`: the files that tools made."""

import asyncio

from aiohttp import web

from caesura.runtime.server.errors import ApiError
from caesura.tools.artifacts import URL_PREFIX, ArtifactStore

_STORE = web.AppKey("caesura_artifacts", ArtifactStore)
_YEAR_SECONDS = 365 * 24 * 3600
_HEADERS = {
    # A file's name is the digest of its content, so the content never changes.
    # Shared caches must not keep the file, since the route may need a key.
    "Cache-Control": f"private, max-age={_YEAR_SECONDS}, immutable",
    "Content-Disposition": "inline",
    # An SVG may hold scripts, which must not run.
    "Content-Security-Policy": "sandbox; default-src 'none'",
    "X-Content-Type-Options": "nosniff",
}


def serve_artifacts(app: web.Application, store: ArtifactStore) -> None:
    """Add the route that serves the store's files to an application."""
    app[_STORE] = store
    app.router.add_get(URL_PREFIX + "{name}", _artifact)


async def _artifact(request: web.Request) -> web.StreamResponse:
    store = request.app[_STORE]
    artifact = await asyncio.to_thread(store.get, request.match_info["name"])
    if artifact is None:
        message = "There is no such file; the server deletes old files to make room for new ones."
        raise ApiError(404, message, code="artifact_not_found")
    media_type = artifact.media_type
    if media_type.startswith("text/"):
        media_type += "; charset=utf-8"
    return web.FileResponse(artifact.path, headers={**_HEADERS, "Content-Type": media_type})
