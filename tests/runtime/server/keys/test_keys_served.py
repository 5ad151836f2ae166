"""Keys on a server: limits of their own, names that people are known by, and caches apart."""

import asyncio
from contextlib import contextmanager

from caesura.runtime.server.keys.key import Key, salted, tenant_of
from caesura.runtime.testing import ScriptedEngine, call
from caesura.scheduler.vllm_server import VllmServer
from caesura.tools.people import People, with_approval
from tests.kit.server import MODEL, Behind
from tests.kit.waiting import until

ANN, BOB = ({"Authorization": f"Bearer {each}"} for each in ("ann", "bob"))
CHAT = "/v1/chat/completions"


async def test_one_keys_limit_is_no_other_keys(serve_script):
    served = await serve_script(["Hi."] * 4, api_key=[Key("ann", rpm=1), Key("bob")])
    statuses = []
    for headers in (ANN, ANN, BOB, BOB):
        async with served.http.post(CHAT, json=served.body(), headers=headers) as response:
            statuses.append(response.status)
            if headers is ANN:
                assert response.headers["x-ratelimit-limit-requests"] == "1"
                assert response.headers["x-ratelimit-remaining-requests"] == "0"
            else:
                assert "x-ratelimit-limit-requests" not in response.headers
            if response.status == 429:
                assert 1 <= int(response.headers["Retry-After"]) <= 60
                assert (await response.json())["error"]["code"] == "rate_limit_exceeded"
    assert statuses == [200, 429, 200, 200]


async def test_tokens_of_an_answer_are_counted(serve_script):
    served = await serve_script(["One two three."] * 2, api_key=[Key("ann", tpm=1)])
    statuses = []
    for path in (CHAT, "/v1/messages"):
        body = served.body(max_tokens=100)
        async with served.http.post(path, json=body, headers=ANN) as response:
            statuses.append(response.status)
    assert statuses == [200, 429]


async def test_requests_in_flight_are_counted_until_they_end(serve_script, hanging):
    served = await serve_script(
        [call("hang"), "Done.", "Hi."], [hanging.tool], api_key=[Key("ann", in_flight=1)]
    )

    async def ask(**fields) -> int:
        async with served.http.post(CHAT, json=served.body(**fields), headers=ANN) as response:
            await response.read()
            return response.status

    first = asyncio.create_task(ask(server_tools=["hang"]))
    await hanging.started.wait()
    assert await ask() == 429
    hanging.released.set()
    assert await first == 200
    assert await ask() == 200


async def salts_of(serve_script, **options) -> list[str | None]:
    """Return the salts of the same request from two keys, and from one with a salt of its own."""
    specs = []

    class Noting(ScriptedEngine):
        def open(self, spec, log=None):
            specs.append(spec)
            return super().open(spec, log)

    served = await serve_script(Noting(["Hi."] * 3, model=MODEL), **options)
    for headers, fields in ((ANN, {}), (BOB, {}), (ANN, {"cache_salt": "own"})):
        async with served.http.post(CHAT, json=served.body(**fields), headers=headers) as response:
            assert response.status == 200
    return [spec.cache_salt for spec in specs]


async def test_several_keys_have_caches_of_their_own(serve_script):
    salts = await salts_of(serve_script, api_key=["ann", "bob"])
    assert salts == [
        salted(tenant_of("ann"), None),
        salted(tenant_of("bob"), None),
        salted(tenant_of("ann"), "own"),
    ]


async def test_keys_share_the_cache_where_that_is_wanted(serve_script):
    salts = await salts_of(serve_script, api_key=["ann", "bob"], shared_prefix_cache=True)
    assert salts == [None, None, "own"]


async def test_what_vllm_answers_has_the_keys_cache_too(serve_script):
    salts = []

    @contextmanager
    def salting(salt):
        salts.append((salt(None), salt("own")))
        yield

    vllm = VllmServer(Behind(), None, salted=salting)
    served = await serve_script([], api_key=["ann", "bob"], vllm=vllm)
    for headers in (ANN, BOB):
        async with served.http.post("/v1/completions", json={}, headers=headers) as response:
            assert response.status == 200
    expected = [tenant_of(each) for each in ("ann", "bob")]
    assert salts == [(salted(each, None), salted(each, "own")) for each in expected]


async def test_tokens_of_what_vllm_answers_are_counted(serve_script):
    class Tap:
        tokens = [1] * 120
        requests = 1
        reason = "stop"
        listener = None

    @contextmanager
    def tapped():
        yield Tap()

    vllm = VllmServer(Behind(), None, tapped=tapped)
    served = await serve_script([], api_key=[Key("ann", tpm=60)], vllm=vllm)
    statuses = []
    for _ in range(2):
        async with served.http.post("/v1/completions", json={}, headers=ANN) as response:
            statuses.append(response.status)
    assert statuses == [200, 429]


async def test_a_key_decides_under_its_own_name_or_digest(serve_script, double, tmp_path):
    people = People(tmp_path / "people.sqlite")
    keys = [Key("ann", "Ann"), Key("bob")]
    script = [call("double", number=2), "Four.", call("double", number=2), "Four."]
    tools = [with_approval(double, people)]
    served = await serve_script(script, tools, api_key=keys, people=people)

    async def ask(headers) -> int:
        body = served.body(server_tools=["double"])
        async with served.http.post(CHAT, json=body, headers=headers) as response:
            return response.status

    for headers, who in ((ANN, "Ann"), (BOB, Key("bob").who)):
        asking = asyncio.create_task(ask(headers))
        await until(lambda: people.waited_for)
        path = f"/v1/pending/{people.waited_for[0].id}"
        said = {"approve": True, "who": "Mallory"}
        async with served.http.post(path, json=said, headers=headers) as response:
            assert (await response.json())["who"] == who
        assert await asking == 200
    await people.aclose()
