"""A server without a key refuses what a foreign web page may have sent."""

import asyncio
from pathlib import Path

import pytest

from caesura.runtime.cli.serve_options import DoorOptions
from caesura.runtime.errors import UsageError
from caesura.runtime.recording.recorder import Recorder
from caesura.runtime.recording.storage import Store
from caesura.runtime.server import create_app, serve
from caesura.runtime.server.keys.access import is_loopback
from caesura.runtime.server.keys.key import tenant_of, weights_of
from caesura.runtime.server.load.options import ServerOptions
from caesura.runtime.testing import ScriptedEngine, call, say
from caesura.tools.artifacts import ArtifactStore
from caesura.tools.people import People, with_approval
from caesura.tools.registry import Registry
from tests.kit.waiting import until

GETS = [
    "/v1/models",
    "/v1/models/tiny/scripted",
    "/metrics",
    "/ui",
    "/ui/",
    "/ui/ui.js",
    "/v1/trace",
    "/v1/trace/live",
    "/v1/trace/live/events",
    "/v1/trace/live/export",
    "/v1/trace/live/perfetto",
    "/v1/pending",
    "/v1/pending/events",
    "/v1/pending/0123",
    "/artifacts/0123.png",
    "/no/such/route",
]
POSTS = ["/v1/chat/completions", "/v1/pending/0123"]
REBOUND = {"Host": "rebind.evil.example:8000"}
FOREIGN = {"Origin": "http://evil.example"}


@pytest.fixture
async def whole(serve_script, tmp_path: Path):
    """A server with every route that there is."""
    people = People(tmp_path / "people.sqlite")
    artifacts = ArtifactStore(tmp_path / "artifacts")
    with Recorder(Store(tmp_path / "traces.sqlite")) as recorder:
        yield await serve_script([], people=people, recorder=recorder, artifacts=artifacts)
    await people.aclose()


async def error_of(response) -> tuple[int, str, str]:
    error = (await response.json())["error"]
    return response.status, error["code"], error["message"]


@pytest.mark.parametrize("path", GETS + POSTS)
@pytest.mark.parametrize(
    ("headers", "code", "named"),
    [
        (REBOUND, "host_not_allowed", "'rebind.evil.example'"),
        (FOREIGN, "origin_not_allowed", "'http://evil.example'"),
        ({"Origin": "null"}, "origin_not_allowed", "'null'"),
        (REBOUND | {"Origin": "http://rebind.evil.example:8000"}, "host_not_allowed", "rebind"),
    ],
)
async def test_no_route_answers_a_foreign_page(whole, path, headers, code, named):
    method = "POST" if path in POSTS else "GET"
    body = whole.body() if method == "POST" else None
    async with whole.http.request(method, path, json=body, headers=headers) as response:
        status, found, message = await error_of(response)
    assert (status, found) == (403, code)
    assert named in message and "--allowed-host" in message
    assert whole.engine.sessions == []


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize("key", [None, "secret"])
@pytest.mark.parametrize("said", ["text/plain", "application/x-www-form-urlencoded", None])
async def test_a_body_must_say_that_it_is_json(serve_script, tmp_path, path, key, said):
    people = People(tmp_path / "people.sqlite")
    served = await serve_script([], people=people, api_key=key)
    headers = {"Authorization": f"Bearer {key}"} | ({"Content-Type": said} if said else {})
    skip = [] if said else ["Content-Type"]
    async with served.http.post(
        path, data=b"{}", headers=headers, skip_auto_headers=skip
    ) as response:
        status, code, message = await error_of(response)
    assert (status, code) == (415, "unsupported_media_type")
    assert "send application/json" in message and (said or "missing") in message
    await people.aclose()


async def test_a_page_cannot_approve_a_call(serve_script, tmp_path, double):
    people = People(tmp_path / "people.sqlite")
    engine = ScriptedEngine([call("double", number=2), say("4")], model="tiny/scripted")
    served = await serve_script(engine, [with_approval(double, people)], people=people)
    chat = asyncio.create_task(served.chat(server_tools=["double"]))
    await until(lambda: people.waited_for)
    path = f"/v1/pending/{people.waited_for[0].id}"
    for headers in (REBOUND, FOREIGN, {"Content-Type": "text/plain"}):
        sent = {"Content-Type": "application/json"} | headers
        async with served.http.post(path, data=b'{"approve": true}', headers=sent) as response:
            assert response.status in (403, 415)
    assert [item.state for item in people.waited_for] == ["open"]
    async with served.http.post(path, json={"approve": False}) as response:
        assert response.status == 200
    assert (await chat)[0] == 200
    await people.aclose()


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:8000", "localhost.:80", "127.0.0.1:8000", "[::1]:8000", "10.1.2.3",
     "llm.example.com", "LLM.example.com:8443", "box"],
)  # fmt: skip
async def test_own_names_are_answered(serve_script, host):
    served = await serve_script([], allowed_hosts=["llm.example.com", "Box."])
    for origin in ({}, {"Origin": f"http://{host}"}, {"Origin": "https://llm.example.com:1"}):
        async with served.http.get("/v1/models", headers={"Host": host} | origin) as response:
            assert response.status == 200, origin


@pytest.mark.parametrize(
    "host",
    ["localhost.evil.example", "127.0.0.1.evil.example", "llm.example.com.evil.example", "x",
     "xllm.example.com", "[evil.example]", "127.0.0.1@evil.example", ""],
)  # fmt: skip
async def test_names_that_only_look_alike_are_refused(serve_script, host):
    served = await serve_script([], allowed_hosts=["llm.example.com"])
    async with served.http.get("/v1/models", headers={"Host": host}) as response:
        assert response.status in (400, 403)


@pytest.mark.parametrize(
    "origin",
    ["http://127.0.0.1:1", "http://localhost", "http://203.0.113.5", "chrome-extension://abc",
     "http://[", "http://", "https://llm.example.com.evil.example"],
)  # fmt: skip
async def test_other_pages_are_foreign_wherever_they_stand(serve_script, origin):
    served = await serve_script([], allowed_hosts=["llm.example.com"])
    async with served.http.get("/v1/models", headers={"Origin": origin}) as response:
        assert response.status == 403


async def test_health_is_told_under_every_name(serve_script):
    served = await serve_script([])
    async with served.http.get("/health", headers=REBOUND | FOREIGN) as response:
        assert response.status == 200


async def test_a_key_makes_names_unimportant(serve_script):
    served = await serve_script([], api_key="secret")
    headers = REBOUND | FOREIGN
    async with served.http.get("/v1/models", headers=headers) as response:
        assert response.status == 401
    headers |= {"Authorization": "Bearer secret"}
    async with served.http.get("/v1/models", headers=headers) as response:
        assert response.status == 200


@pytest.mark.parametrize("name", ["*", "http://llm.example.com", "llm.example.com:80", "", "a b"])
def test_what_is_no_name_is_refused_at_the_start(name):
    with pytest.raises(UsageError, match="is not a host name: give a name such as"):
        create_app(ScriptedEngine([]), Registry(), ServerOptions(allowed_hosts=[name]))


async def test_a_server_answers_under_the_name_that_it_listens_on(monkeypatch):
    made: list[ServerOptions] = []

    def create(engine, tools, options, parts):
        made.append(options)
        raise UsageError("far enough")

    monkeypatch.setattr("caesura.runtime.server.listen.create_app", create)
    for host, expected in [("box", ["x", "box"]), ("0.0.0.0", ["x"]), ("localhost", ["x"])]:
        with pytest.raises(UsageError, match="far enough"):
            await serve(
                ScriptedEngine([]), Registry(), ServerOptions(host=host, allowed_hosts=["x"])
            )
        assert made[-1].allowed_hosts == expected


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True),
     ("0.0.0.0", False), ("::", False), ("10.0.0.1", False), ("box", False), ("", False)],
)  # fmt: skip
def test_loopback_addresses_are_known(host, loopback):
    assert is_loopback(host) is loopback


APP = "https://app.example.com"


@pytest.mark.parametrize("key", [None, "secret"])
async def test_pages_of_an_allowed_origin_may_read_answers(serve_script, key):
    served = await serve_script(["Fine."], api_key=key, allowed_origins=[APP])
    wish = {"Origin": APP, "Access-Control-Request-Method": "POST"}
    wish["Access-Control-Request-Headers"] = "authorization,content-type"
    async with served.http.options("/v1/chat/completions", headers=wish) as response:
        assert response.status == 200
        assert response.headers["Access-Control-Allow-Origin"] == APP
        assert "authorization" in response.headers["Access-Control-Allow-Headers"]
    headers = {"Origin": APP} | ({"Authorization": f"Bearer {key}"} if key else {})
    async with served.http.post(
        "/v1/chat/completions", json=served.body(), headers=headers
    ) as response:
        assert response.status == 200
        assert response.headers["Access-Control-Allow-Origin"] == APP
    async with served.http.get("/v1/models", headers=headers | FOREIGN) as response:
        assert "Access-Control-Allow-Origin" not in response.headers
        assert response.status == (200 if key else 403)


async def test_without_origins_there_is_no_cors(serve_script):
    served = await serve_script(["Fine."], api_key="secret")
    headers = {"Origin": APP, "Authorization": "Bearer secret"}
    async with served.http.get("/v1/models", headers=headers) as response:
        assert response.status == 200
        assert "Access-Control-Allow-Origin" not in response.headers


@pytest.mark.parametrize("origin", ["*", "app.example.com", "https://a.example/x", "ftp://a"])
def test_what_is_no_origin_is_refused_at_the_start(origin):
    with pytest.raises(UsageError, match=r"allowed origin .* give|name the origins"):
        create_app(ScriptedEngine([]), Registry(), ServerOptions(allowed_origins=[origin]))


async def test_each_of_several_keys_is_valid(serve_script):
    served = await serve_script([], api_key=["first", "second", "clé-à"])
    for key, status in (("first", 200), ("second", 200), ("clé-à", 200), ("third", 401)):
        headers = {"Authorization": f"Bearer {key}"}
        async with served.http.get("/v1/models", headers=headers) as response:
            assert response.status == status


def test_keys_from_a_file(tmp_path):
    file = tmp_path / "keys"
    file.write_text("# ours\nfirst\n\nsecond  # of the lab\n")
    keys = DoorOptions(api_key=["zeroth"], api_key_file=file).keys()
    assert [key.secret for key in keys or ()] == ["zeroth", "first", "second"]
    assert DoorOptions().keys() is None
    file.write_text("# nothing\n")
    with pytest.raises(UsageError, match="holds no key"):
        DoorOptions(api_key_file=file).keys()


def test_a_file_of_keys_gives_weights_by_tenant(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("first weight=3  # pays\nsecond\n")
    keys = DoorOptions(api_key_file=file).keys()
    assert [key.secret for key in keys] == ["first", "second"]
    assert weights_of(keys) == {"weights": {tenant_of("first"): 3.0}}
    assert weights_of(DoorOptions(api_key=["zeroth"]).keys()) == weights_of(None) == {}


@pytest.mark.parametrize("weight", ["0", "-1", "many", "inf", "nan"])
def test_a_wrong_weight_is_refused_without_showing_the_key(tmp_path: Path, weight: str) -> None:
    file = tmp_path / "keys"
    file.write_text(f"other\nsecret weight={weight}\n")
    with pytest.raises(UsageError, match="the weight of key 2 must be a number above 0") as caught:
        DoorOptions(api_key_file=file).keys()
    assert "secret" not in str(caught.value)
