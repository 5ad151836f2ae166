"""Servers over streamable HTTP: the library's own, and one that misbehaves."""

import asyncio
import gzip
import json
import socket
import sys
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from caesura.tools.artifacts import ArtifactStore
from caesura.tools.dispatcher import Dispatcher
from caesura.tools.mcp import MCPServer
from caesura.tools.registry import Registry
from caesura.tools.result import ToolCall
from caesura.tools.services import SetupError
from tests.kit.waiting import until
from tests.tools.mcp.calls import HERE, PNG, Caller

MAX_BYTES = 100_000


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


@asynccontextmanager
async def running(port: int):
    """The library's server on that port."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(HERE / "server.py"), "http", str(port)),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.slow
async def test_the_librarys_own_server(tmp_path, monkeypatch):
    monkeypatch.setattr("caesura.tools.mcp.server.LONGEST_PAUSE_SECONDS", 0.2)
    port = free_port()
    store = ArtifactStore(tmp_path)
    url = f"http://127.0.0.1:{port}/mcp"
    server = MCPServer("web", url=url, artifacts=store, required=False, restarts=1000)
    async with running(port) as process, server:
        call = Caller(server)
        await until(lambda: server.tools)
        assert (await call("add", a=1, b=2)).content == "3"
        picture, _ = (await call("picture")).artifacts
        assert picture.path.read_bytes() == PNG
        async with Dispatcher(Registry(server.tools)) as dispatcher:
            task = dispatcher.start(ToolCall("1", "wait", '{"seconds": 60}'))
            await until(lambda: call("was_begun"), lambda result: result.content == "1")
            await dispatcher.cancel()
            assert (await task).error == "cancelled"
        await until(lambda: call("was_cancelled"), lambda result: result.content == "1")
        await call("learn", name="taught")
        await until(lambda: server.tools[-1].name, lambda name: name == "taught")
        process.kill()
        await process.wait()
        await until(
            lambda: call("add", a=1, b=2), lambda result: "is not connected" in result.content
        )
        async with running(port):
            await until(lambda: call("add", a=1, b=2), lambda result: result.content == "3")


class Misbehaving:
    """A server of the 2025 protocol over HTTP, whose tools are its ways to misbehave."""

    NAMES = (
        *("fine", "giant", "bomb", "text", "html", "empty", "error", "missing", "elsewhere"),
        *("accepted", "never", "wrong_type", "not_json", "events", "endless_event", "cut"),
    )

    def __init__(self) -> None:
        self.headers: list[dict[str, str]] = []
        self.cancelled: list[object] = []
        self.silent = False
        self.refusal: tuple[int, str] | None = None
        """The status and the body of the answer to sessions that were begun before."""
        self.known: set[str] = set()
        self.cursors: list[str] | None = None
        """The cursors behind the pages of the list of tools; the last one comes again and again."""
        self.listings = 0
        self.schema: dict[str, object] = {"type": "object"}
        """The schema of each tool's arguments."""
        self.ran: list[str] = []

    def forget(self, status: int, body: str) -> None:
        """Refuse all sessions so far."""
        self.refusal = (status, body)
        self.known.clear()

    async def post(self, request: web.Request) -> web.StreamResponse:
        self.headers.append(dict(request.headers))
        message = await request.json()
        number, method = message.get("id"), message["method"]
        if method == "notifications/cancelled":
            self.cancelled.append(message["params"]["requestId"])
        if number is None:
            return web.Response(status=202)
        session = request.headers.get("Mcp-Session-Id")
        if self.refusal is not None and session is not None and session not in self.known:
            status, body = self.refusal
            kind = "application/json" if body.startswith("{") else "text/plain"
            return web.Response(status=status, text=body, content_type=kind)
        match method:
            case "initialize":
                if self.silent:
                    await asyncio.sleep(60)
                response = self.result(
                    number,
                    {
                        "protocolVersion": message["params"]["protocolVersion"],
                        "capabilities": {"tools": {}},
                        "serverInfo": {"name": "misbehaving", "version": "1"},
                    },
                )
                session = f"session-{len(self.headers)}"
                self.known.add(session)
                response.headers["Mcp-Session-Id"] = session
                return response
            case "tools/list":
                tools = [{"name": name, "inputSchema": self.schema} for name in self.NAMES]
                listed: dict[str, object] = {"tools": tools}
                if self.cursors:
                    listed["nextCursor"] = self.cursors[min(self.listings, len(self.cursors) - 1)]
                self.listings += 1
                return self.result(number, listed)
            case "tools/call":
                return await self.call(request, number, message["params"]["name"])
        error = {"code": -32601, "message": "no"}
        return web.json_response({"jsonrpc": "2.0", "id": number, "error": error})

    def result(self, number: object, value: object) -> web.Response:
        return web.json_response({"jsonrpc": "2.0", "id": number, "result": value})

    async def call(self, request: web.Request, number: object, name: str) -> web.StreamResponse:
        large = json.dumps(
            {
                "jsonrpc": "2.0",
                "id": number,
                "result": {"content": [{"type": "text", "text": "x" * 10 * MAX_BYTES}]},
            }
        ).encode()
        json_type = {"Content-Type": "application/json"}
        self.ran.append(name)
        answers: dict[str, web.Response] = {
            "giant": web.Response(body=large, headers=json_type),
            "bomb": web.Response(
                body=gzip.compress(large), headers=json_type | {"Content-Encoding": "gzip"}
            ),
            "text": web.Response(text="hello"),
            "html": web.Response(text="<p>", content_type="text/html", status=502),
            "empty": web.Response(body=b"", headers=json_type),
            "error": web.Response(status=500),
            "missing": web.Response(status=404),
            "elsewhere": web.Response(status=307, headers={"Location": "http://example.com/mcp"}),
            "accepted": web.Response(status=202),
            "wrong_type": self.result(number, [1]),
            "not_json": web.Response(body=b"\xff{", headers=json_type),
        }
        if name in answers:
            return answers[name]
        if name == "never":
            await asyncio.sleep(60)
        if name == "fine":
            return self.result(number, {"content": [{"type": "text", "text": "fine"}]})
        return await self.stream(request, number, name)

    async def stream(self, request: web.Request, number: object, name: str) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(
            b"event: message\ndata: nonsense\n\n" if name == "events" else b": hi\n\n"
        )
        if name == "endless_event":
            for _ in range(2 * MAX_BYTES // 1000):
                await response.write(b"data: " + b"x" * 1000 + b"\n")
        if name == "cut":
            assert request.transport is not None
            request.transport.close()
        return response


@pytest.fixture
async def misbehaving():
    """The server's url and itself."""
    server = Misbehaving()
    app = web.Application()
    app.router.add_post("/mcp", server.post)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{site.port}/mcp", server
    await runner.cleanup()


async def test_hostile_answers_are_errors_and_the_next_call_works(misbehaving, monkeypatch):
    monkeypatch.setattr("caesura.tools.mcp.server.LONGEST_PAUSE_SECONDS", 0.05)
    url, told = misbehaving
    settings = {"max_message_bytes": MAX_BYTES, "timeout_seconds": 1.0, "restarts": 1000}
    async with MCPServer("web", url=url, **settings) as server:
        call = Caller(server)
        for name in Misbehaving.NAMES[1:]:
            result = await call(name)
            assert result.error in ("failed", "timeout"), name
            assert len(result.content) < 1000, name
            if name in ("giant", "endless_event"):
                assert (
                    str(MAX_BYTES) in result.content or "was lost during the call" in result.content
                )
            await until(lambda: call("fine"), lambda result: result.content == "fine")
    assert told.cancelled  # the call that was never answered


async def test_headers_are_sent_with_their_variables(misbehaving, monkeypatch):
    monkeypatch.setenv("TOKEN", "abc")
    url, told = misbehaving
    async with MCPServer("web", url=url, headers={"Authorization": "Bearer ${TOKEN}"}):
        pass
    assert {headers["Authorization"] for headers in told.headers} == {"Bearer abc"}
    assert {headers["Accept-Encoding"] for headers in told.headers} == {"identity"}


async def test_a_call_that_the_new_session_refuses_too_fails(misbehaving):
    url, told = misbehaving
    async with MCPServer("web", url=url) as server:
        call = Caller(server)
        assert (
            "was lost during the call" in (await call("missing")).content
        )  # 404, within a session
        await until(lambda: call("fine"), lambda result: result.content == "fine")
    sessions = {headers.get("mcp-session-id") for headers in told.headers} - {None}
    assert len(sessions) == 3
    assert told.ran[:2] == ["missing"] * 2


def refusal(code: int, message: str, number: object = None) -> str:
    error = {"code": code, "message": message}
    return json.dumps({"jsonrpc": "2.0", "id": number, "error": error})


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, ""),
        (404, "Session not found"),
        (404, refusal(-32001, "Session not found")),
        (404, refusal(-32600, "Session not found", "server-error")),
        (404, refusal(-32000, "gone")),
        (404, "{broken"),
        (404, '{"error": 3}'),
        (404, "{" + "x" * 2 * MAX_BYTES),
        (400, refusal(-32000, "Bad Request: No valid session ID provided")),
        (400, refusal(-32000, "Bad Request: Server not initialized")),
    ],
)
async def test_a_call_is_made_in_a_new_session_when_the_server_forgot_the_old(
    misbehaving, status, body
):
    url, told = misbehaving
    async with MCPServer("web", url=url, max_message_bytes=MAX_BYTES) as server:
        call = Caller(server)
        assert (await call("fine")).content == "fine"
        told.forget(status, body)
        assert [(await call("fine")).content for _ in range(3)] == ["fine"] * 3
    assert told.ran == ["fine"] * 4
    assert len(told.known) == 1


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (404, refusal(-32601, "no such method"), "no such method"),
        (400, refusal(-32602, "the session's name is missing"), "the session's name is missing"),
        (400, refusal(-32000, "too many arguments"), "too many arguments"),
        (400, "nonsense", "Server returned an error response"),
    ],
)
async def test_other_refusals_keep_the_session(misbehaving, status, body, reason):
    url, told = misbehaving
    async with MCPServer("web", url=url) as server:
        call = Caller(server)
        told.forget(status, body)
        assert reason in (await call("fine")).content
        told.refusal = None
        assert (await call("fine")).content == "fine"
    assert told.ran == ["fine"]
    assert not told.known  # no new session was begun


async def test_calls_at_once_share_the_new_session(misbehaving):
    url, told = misbehaving
    async with MCPServer("web", url=url) as server:
        call = Caller(server)
        told.forget(404, refusal(-32001, "Session not found"))
        results = await asyncio.gather(*(call("fine") for _ in range(5)))
    assert [result.content for result in results] == ["fine"] * 5
    assert len(told.known) == 1


@pytest.mark.parametrize(
    ("cursors", "listings"),
    [([""], 1), (["0"], 2), (["1", "2", ""], 3), (["1", "2", "1"], 3)],
)
async def test_a_list_ends_with_an_empty_or_repeated_cursor(misbehaving, cursors, listings):
    url, told = misbehaving
    told.cursors = cursors
    async with MCPServer("web", url=url) as server:
        assert [tool.name for tool in server.tools] == list(Misbehaving.NAMES)
    assert told.listings == listings


async def test_a_reference_that_leads_nowhere_is_left_to_the_server(misbehaving, caplog):
    url, told = misbehaving
    lost = {"$ref": "#/$defs/Lost"}
    told.schema = {"type": "object", "properties": {"n": {"type": "integer"}, "f": lost}}
    async with MCPServer("web", url=url) as server:
        call = Caller(server)
        assert (await call("fine", f={"any": "thing"}, n=1)).content == "fine"
        assert "'one' is not of type 'integer'" in (await call("fine", f="raw", n="one")).content
    assert told.ran == ["fine"]
    assert "'fine': its schema lacks #/$defs/Lost" in caplog.text


async def test_one_that_never_answers(misbehaving):
    url, told = misbehaving
    told.silent = True
    with pytest.raises(SetupError, match=r"no answer within 0\.5 seconds"):
        await MCPServer("web", url=url, start_seconds=0.5).start()


async def test_no_server_listens():
    with pytest.raises(SetupError, match="the MCP server 'web' does not start"):
        await MCPServer("web", url=f"http://127.0.0.1:{free_port()}/mcp").start()
