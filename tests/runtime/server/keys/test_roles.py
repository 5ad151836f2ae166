"""Roles of keys: every route has a rule, and every key gets what its role allows."""

import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from starlette.routing import BaseRoute, Mount, Route, Router, WebSocketRoute

from caesura.runtime.cli import serve
from caesura.runtime.errors import UsageError
from caesura.runtime.recording.recorder import Recorder
from caesura.runtime.recording.storage import Store
from caesura.runtime.server import create_app
from caesura.runtime.server.keys.access import Door
from caesura.runtime.server.keys.key import Key, keys_of, read_keys
from caesura.runtime.server.keys.rules import SOCKET, Role, least_role, rule_of
from caesura.runtime.server.load.options import ServerOptions
from caesura.runtime.server.plugin import KEY_FILE, EndpointPlugin, keys_with_settings
from caesura.runtime.testing import ScriptedEngine
from caesura.runtime.whatif.replays import Replays
from caesura.tools.artifacts import ArtifactStore
from caesura.tools.people import People
from caesura.tools.registry import Registry
from tests.kit.server import Served, settings

KEYS = [
    Key("bob-secret", "bob"),
    Key("vic-secret", "vic", role=Role.VIEW),
    Key("amy-secret", "amy", role=Role.APPROVE),
    Key("ada-secret", "ada", role=Role.ADMIN),
]
BOB, VIC, AMY, ADA = ({"Authorization": f"Bearer {key.secret}"} for key in KEYS)
ALL_DEV = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}


def told(routes: list[BaseRoute]) -> Iterator[tuple[str, str]]:
    """Yield the method and the path of each route, as a request would have them."""
    for route in routes:
        if isinstance(route, Mount):
            yield "GET", f"{route.path}/some/file"
        elif isinstance(route, WebSocketRoute):
            yield SOCKET, route.path
        else:
            assert isinstance(route, Route), f"{route!r} is of a kind that has no rule"
            for method in route.methods or ():
                yield "GET" if method == "HEAD" else method, route.path


def without_rule(routes: list[BaseRoute]) -> set[tuple[str, str]]:
    return {each for each in told(routes) if rule_of(*each) is None}


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    with Recorder(Store(tmp_path / "traces.sqlite"), "test", "serve", {"model": "m"}) as made:
        yield made


def everything(tmp_path: Path, recorder: Recorder) -> dict[str, Any]:
    """Options with which an application has all of its routes."""
    return {
        "artifacts": ArtifactStore(tmp_path / "artifacts"),
        "people": People(tmp_path / "people.sqlite"),
        "recorder": recorder,
        "replays": Replays(recorder.store, lambda: None),
    }


def test_every_route_of_ours_has_a_rule(tmp_path, recorder):
    app = create_app(ScriptedEngine([]), Registry([]), *settings(**everything(tmp_path, recorder)))
    routes = list(app._router.routes)
    assert len(routes) > 35
    assert not without_rule(routes)


def test_every_route_of_vllms_server_has_a_rule(monkeypatch):
    """What it has with all of its options, and each router of its package."""
    app = pytest.importorskip("vllm.entrypoints.launchers.app")
    tasks = importlib.import_module("vllm.tasks")
    from caesura.scheduler.vllm.client.options import server_args

    for name, value in ALL_DEV.items():
        monkeypatch.setenv(name, value)
    routes: list[BaseRoute] = []
    for offline in (False, True):
        args = server_args({})
        args.enable_scale_out = args.enable_fault_tolerance = True
        args.enable_tokenizer_info_endpoint, args.enable_offline_docs = True, offline
        routes += app.build_app(args, get_args(tasks.SupportedTask)).routes
    package = importlib.import_module("vllm.entrypoints")
    for module in pkgutil.walk_packages(package.__path__, "vllm.entrypoints."):
        if module.name.endswith(".api_router"):
            for value in vars(importlib.import_module(module.name)).values():
                if isinstance(value, Router):
                    routes += value.routes
    paths = {path for _, path in told(routes)}
    assert {"/pause", "/sleep", "/v1/load_lora_adapter", "/v1/embeddings", "/rerank"} <= paths
    assert not without_rule(routes)


def test_a_route_without_a_rule_is_an_administrators():
    scope = {"type": "http", "method": "GET", "path": "/v1/tomorrow", "root_path": ""}
    assert least_role(scope) is Role.ADMIN
    assert least_role(scope | {"path": "/v1/models", "method": "DELETE"}) is Role.ADMIN
    assert least_role(scope | {"path": "/proxy/v1/models", "root_path": "/proxy"}) is Role.CLIENT


@pytest.mark.parametrize(
    ("least", "method", "path"),
    [
        (Role.OPEN, "GET", "/health"),
        (Role.OPEN, "GET", "/ui/"),
        (Role.CLIENT, "POST", "/v1/chat/completions"),
        (Role.CLIENT, "GET", "/v1/models"),
        (Role.CLIENT, "GET", "/v1/responses/resp_1"),
        (Role.CLIENT, "GET", "/v1/pending"),
        (Role.VIEW, "GET", "/v1/trace"),
        (Role.VIEW, "GET", "/v1/trace/live"),
        (Role.VIEW, "GET", "/v1/what-if"),
        (Role.VIEW, "GET", "/metrics"),
        (Role.ADMIN, "PATCH", "/v1/trace/1"),
        (Role.ADMIN, "DELETE", "/v1/trace/1"),
        (Role.ADMIN, "POST", "/v1/what-if"),
        (Role.ADMIN, "POST", "/pause"),
        (Role.ADMIN, "POST", "/v1/load_lora_adapter"),
        (Role.ADMIN, "GET", "/v1/tomorrow"),
    ],
)
async def test_each_role_gets_what_it_may(serve_script, tmp_path, recorder, least, method, path):
    options = everything(tmp_path, recorder)
    served = await serve_script([], api_key=KEYS, **options)
    for key in (None, *KEYS):
        headers = {} if key is None else {"Authorization": f"Bearer {key.secret}"}
        role = Role.OPEN if key is None else key.role or Role.CLIENT
        body = {"json": {}} if method in ("POST", "PATCH") else {}
        async with served.http.request(method, path, headers=headers, **body) as response:
            refused = response.status in (401, 403)
            assert refused == (role < least), (role, response.status)
            if refused:
                error = (await response.json())["error"]
                assert error["code"] == ("invalid_api_key" if key is None else "role_needed")
                if key is not None:
                    assert (
                        f"the role {least.word}, and this key has the role {role.word}"
                        in (error["message"])
                    )
                    assert f"role={least.word}" in error["message"]
                    unknown = rule_of(method, path) is None
                    assert ("no route that this server knows" in error["message"]) == unknown
    await options["people"].aclose()


@pytest.mark.parametrize("api_key", [None, "one-secret", [Key("one-secret", "one")]])
async def test_one_key_or_none_may_do_everything(serve_script, tmp_path, recorder, api_key):
    served: Served = await serve_script([], api_key=api_key, recorder=recorder)
    headers = {} if api_key is None else {"Authorization": "Bearer one-secret"}
    for method, path, status in (
        ("GET", "/v1/trace", 200),
        ("DELETE", "/v1/trace/9", 404),
        ("GET", "/metrics", 200),
        ("GET", "/v1/tomorrow", 404),
    ):
        async with served.http.request(method, path, headers=headers) as response:
            assert response.status == status, path


def test_a_key_alone_is_the_administrators_and_several_are_clients():
    assert [key.role for key in keys_of("one") or ()] == [Role.ADMIN]
    assert [key.role for key in keys_of(["one", "two"]) or ()] == [Role.CLIENT, Role.CLIENT]
    assert [key.role for key in keys_of([Key("one", role=Role.VIEW)]) or ()] == [Role.VIEW]
    again = keys_of(keys_of(["one", Key("two", role=Role.ADMIN)]))
    assert [key.role for key in again or ()] == [Role.CLIENT, Role.ADMIN]


def test_the_file_of_keys_gives_roles(tmp_path):
    file = tmp_path / "keys"
    file.write_text("one\ntwo role=view\nthree name=amy role=approve rpm=6\nfour role=admin\n")
    assert [key.role for key in read_keys(file)] == [None, Role.VIEW, Role.APPROVE, Role.ADMIN]
    for wrong in ("open", "root", ""):
        file.write_text(f"hidden role={wrong}\n")
        with pytest.raises(UsageError, match="must be one of client, view, approve, admin") as no:
            read_keys(file)
        assert "hidden" not in str(no.value)


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        (None, "there is no API key"),
        (["one"], None),
        (["one", "two"], "no key has the role admin"),
        ([Key("one", role=Role.VIEW)], "no key has the role admin"),
        ([Key("one"), Key("two", role=Role.ADMIN)], None),
    ],
)
def test_a_server_says_when_everybody_or_nobody_may_do_everything(monkeypatch, keys, says):
    said: list[str] = []
    monkeypatch.setattr(serve.console, "print", lambda text, **_: said.append(text))
    serve._warn_of_keys(keys_of(keys), "0.0.0.0")
    assert len(said) == (says is not None)
    assert says is None or said[0].startswith(says)


def reach(door, headers, least=Role.ADMIN):
    return door.reach(door.sender(headers), least)


def signature(door, headers, claimed):
    return door.signature(door.sender(headers), claimed)


def test_a_key_reaches_its_own_records_and_an_administrator_all():
    door = Door(KEYS)
    assert [reach(door, each) for each in (BOB, VIC, AMY)] == [key.tenant for key in KEYS[:3]]
    assert reach(door, ADA) is None
    assert reach(door, VIC, Role.VIEW) is None
    assert reach(door, BOB, Role.VIEW) == KEYS[0].tenant
    assert reach(door, {"Authorization": "Bearer unknown"}) not in (None, "", KEYS[0].tenant)
    assert reach(door, {}) not in (None, ""), "records without an owner are an administrator's"
    assert reach(Door(None), BOB) is None
    assert reach(Door("bob-secret"), BOB) is None


def test_only_an_administrator_signs_as_they_like():
    door = Door([*KEYS, Key("nameless"), Key("chief", role=Role.ADMIN)])
    nameless, chief = ({"x-api-key": each} for each in ("nameless", "chief"))
    assert signature(door, BOB, "the boss") == "bob"
    assert signature(door, nameless, "the boss") == Key("nameless").who
    assert signature(door, chief, "the boss") == "the boss"
    assert signature(Door(None), {}, "Ann") == "Ann"
    assert signature(Door("alone"), {"x-api-key": "alone"}, "Ann") == "Ann"


async def test_inside_vllms_server_its_own_routes_have_rules_too():
    """vLLM's server knows no roles, so the plugin in front of it refuses what a role may not."""
    plugin = EndpointPlugin()
    plugin._ours = create_app(ScriptedEngine([]), Registry([]), ServerOptions(api_key=KEYS))

    async def behind(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def status_of(method: str, path: str, headers: dict[str, str]) -> int:
        raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        scope = {"type": "http", "method": method, "path": path, "headers": raw, "root_path": ""}
        sent: list[Any] = []

        async def send(message):
            sent.append(message)

        async def receive():
            return {"type": "http.request", "body": b"", "more_body": False}

        await plugin.answer(behind, scope, receive, send)
        return int(sent[0]["status"])

    assert await status_of("POST", "/v1/load_lora_adapter", BOB) == 403
    assert await status_of("POST", "/v1/load_lora_adapter", ADA) == 200
    assert await status_of("POST", "/v1/completions", BOB) == 200
    assert await status_of("GET", "/v1/tomorrow", AMY) == 403
    assert await status_of("GET", "/v1/trace", BOB) == 403
    assert await status_of("POST", "/pause", {}) == 200, "vLLM asks for no key there"


def test_the_keys_of_vllms_server_get_their_roles_from_a_file(tmp_path):
    file = tmp_path / "keys"
    file.write_text("one name=ann role=admin\n")
    environment = {KEY_FILE: str(file)}
    keys = keys_with_settings(["one", "two"], environment)
    assert [(key.who, key.role) for key in keys_of(keys) or ()] == [
        ("ann", Role.ADMIN),
        (Key("two").who, Role.CLIENT),
    ]
    assert keys_with_settings(["one"], {}) == [Key("one")]
    with pytest.raises(UsageError, match="holds 1 of 1 keys that `vllm serve` does not take"):
        keys_with_settings(["two"], environment)
