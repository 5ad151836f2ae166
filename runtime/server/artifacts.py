"""`GET /artifacts/{name}`: the files that tools made."""

import asyncio

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from caesura.runtime.server.http.errors import ApiError
from caesura.runtime.server.keys.door import Door
from caesura.runtime.server.keys.key import Reach
from caesura.runtime.server.keys.rules import Role
from caesura.tools.artifacts import URL_PREFIX, Artifact, ArtifactStore

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


def artifact_routes(store: ArtifactStore, door: Door) -> list[Route]:
    """Return the route that serves the store's files: to a client those that its key has made."""

    def fetched(name: str, reach: Reach) -> Artifact | None:
        found = store.get(name)
        seen = found is None or reach is None or store.belongs_to(found, reach)
        return found if seen else None

    async def artifact(request: Request) -> Response:
        reach = door.reach(request.headers, Role.VIEW)
        found = await asyncio.to_thread(fetched, request.path_params["name"], reach)
        if found is None:
            message = "There is no such file; the server deletes old files to make room for new."
            raise ApiError(404, message, code="artifact_not_found")
        # The name is the digest of the content.
        headers = {**_HEADERS, "ETag": f'"{found.path.name}"'}
        if headers["ETag"] in request.headers.get("If-None-Match", ""):
            return Response(status_code=304, headers=headers)
        media_type = found.media_type
        if media_type.startswith("text/"):
            media_type += "; charset=utf-8"
        return FileResponse(found.path, headers={**headers, "Content-Type": media_type})

    return [Route(URL_PREFIX + "{name:path}", artifact)]
