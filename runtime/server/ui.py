"""`/ui/`: the page that shows recordings. Its files hold no data and need no key."""

import asyncio

from aiohttp import web

from caesura.runtime.errors import UsageError
from caesura.runtime.recording.files.page import Page, built
from caesura.runtime.server.errors import ApiError

OPEN = frozenset({"/ui", "/ui/", "/ui/ui.js", "/ui/ui.css"})
"""The routes that need no key."""
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


def serve_ui(app: web.Application) -> None:
    """Add the page's routes to an application."""
    app.router.add_get("/ui", _to_the_page)
    app.router.add_get("/ui/", _index)
    app.router.add_get("/ui/ui.js", _script)
    app.router.add_get("/ui/ui.css", _styles)


async def _to_the_page(request: web.Request) -> web.Response:
    # A relative address works under a proxy's path prefix too. The query is kept.
    query = f"?{request.query_string}" if request.query_string else ""
    return web.Response(status=308, headers={"Location": f"ui/{query}"})


async def _index(request: web.Request) -> web.Response:
    return _answer((await _page()).html, "text/html")


async def _script(request: web.Request) -> web.Response:
    return _answer((await _page()).script, "text/javascript")


async def _styles(request: web.Request) -> web.Response:
    return _answer((await _page()).styles, "text/css")


async def _page() -> Page:
    try:
        return await asyncio.to_thread(built)
    except UsageError as error:
        message = str(error)
        raise ApiError(404, f"{message[:1].upper()}{message[1:]}.", code="not_built") from None


def _answer(text: str, media_type: str) -> web.Response:
    return web.Response(text=text, content_type=media_type, charset="utf-8", headers=_HEADERS)
