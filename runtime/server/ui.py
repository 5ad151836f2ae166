"""`/ui/`: the page that shows recordings. Its files hold no data and need no key."""

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from caesura.runtime.errors import UsageError
from caesura.runtime.recording.files.page import Page, built
from caesura.runtime.server.http.errors import ApiError

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
_HEADERS = {
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
    return _answer((await _page()).html, "text/html")


async def _script(request: Request) -> Response:
    return _answer((await _page()).script, "text/javascript")


async def _styles(request: Request) -> Response:
    return _answer((await _page()).styles, "text/css")


async def _page() -> Page:
    try:
        return await asyncio.to_thread(built)
    except UsageError as error:
        message = str(error)
        raise ApiError(404, f"{message[:1].upper()}{message[1:]}.", code="not_built") from None


def _answer(text: str, media_type: str) -> Response:
    return Response(text, media_type=media_type, headers=_HEADERS)
