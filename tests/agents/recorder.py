"""A reverse proxy that keeps every exchange between a client and a server as a file of JSON."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import WSMsgType, web

_HOP = {"host", "content-length", "transfer-encoding", "connection", "keep-alive"}
_HOP |= {"accept-encoding", "upgrade"}


class Recorder:
    """Passes requests on to one server; `folder` says where what follows is kept."""

    def __init__(self, upstream: str, http: aiohttp.ClientSession) -> None:
        self.folder = Path()
        self._upstream = upstream
        self._http = http
        self._count = 0

    def application(self) -> web.Application:
        """Return the application that passes requests on."""
        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/{tail:.*}", self._pass)
        return app

    def _file(self) -> Path:
        self._count += 1
        self.folder.mkdir(parents=True, exist_ok=True)
        return self.folder / f"{self._count:05d}.json"

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        file = self._file()
        kept: dict[str, Any] = {
            "time": time.time(),
            "method": request.method,
            "path": request.path_qs,
            "headers": dict(request.headers),
        }
        headers = {key: value for key, value in request.headers.items() if key.lower() not in _HOP}
        try:
            if request.headers.get("upgrade", "").lower() == "websocket":
                return await self._socket(request, headers, kept)
            return await self._exchange(request, headers, kept)
        except aiohttp.ClientError as error:
            kept["error"] = repr(error)
            return web.Response(status=502, text=repr(error))
        finally:
            file.write_text(json.dumps(kept, indent=1, ensure_ascii=False))

    async def _exchange(
        self, request: web.Request, headers: dict[str, str], kept: dict[str, Any]
    ) -> web.StreamResponse:
        body = await request.read()
        kept["request"] = _parsed(body)
        url = self._upstream + request.path_qs
        async with self._http.request(
            request.method, url, headers=headers, data=body or None, allow_redirects=False
        ) as given:
            kept["status"] = given.status
            told = {key: value for key, value in given.headers.items() if key.lower() not in _HOP}
            answer = web.StreamResponse(status=given.status, headers=told)
            await answer.prepare(request)
            parts: list[bytes] = []
            try:
                async for chunk in given.content.iter_any():
                    parts.append(chunk)
                    await answer.write(chunk)
                await answer.write_eof()
            finally:
                kept["response"] = _parsed(b"".join(parts))
            return answer

    async def _socket(
        self, request: web.Request, headers: dict[str, str], kept: dict[str, Any]
    ) -> web.StreamResponse:
        headers = {
            key: value
            for key, value in headers.items()
            if not key.lower().startswith("sec-websocket")
        }
        frames: list[list[Any]] = []
        kept["frames"] = frames
        try:
            up = await self._http.ws_connect(
                self._upstream + request.path_qs, headers=headers, max_msg_size=0
            )
        except aiohttp.WSServerHandshakeError as error:
            kept["status"] = error.status
            return web.Response(status=error.status)
        down = web.WebSocketResponse(max_msg_size=0)
        await down.prepare(request)
        kept["status"] = 101

        async def pump(source: Any, target: Any, who: str) -> None:
            async for message in source:
                if message.type == WSMsgType.TEXT:
                    frames.append([who, _parsed(message.data)])
                    await target.send_str(message.data)
                elif message.type == WSMsgType.BINARY:
                    await target.send_bytes(message.data)
            await target.close()

        await asyncio.gather(pump(down, up, "client"), pump(up, down, "server"))
        return down


def _parsed(body: bytes | str) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body if isinstance(body, str) else body.decode("utf-8", "replace")


@asynccontextmanager
async def recording(upstream: str, socket: Path) -> AsyncIterator[tuple[Recorder, int]]:
    """Yield a recorder that listens on a unix socket, and on a port of the loopback."""
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(timeout=timeout, auto_decompress=False) as http:
        recorder = Recorder(upstream, http)
        runner = web.AppRunner(recorder.application(), handler_cancellation=True)
        await runner.setup()
        try:
            await web.UnixSite(runner, str(socket)).start()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            port = runner.addresses[-1][1]
            yield recorder, port
        finally:
            await runner.cleanup()
