"""`GET /artifacts/{name}` of a real server."""

import pytest

from caesura.runtime.testing import call
from caesura.tools import tool
from caesura.tools.artifacts import ArtifactStore
from caesura.tools.result import Output

PNG = b"\x89PNG" + bytes(range(256)) * 20


@pytest.fixture
def store(tmp_path):
    return ArtifactStore(tmp_path / "artifacts")


async def test_a_file_is_served_as_what_it_is(serve_script, store):
    served = await serve_script([], artifacts=store)
    artifact = store.put(PNG, "png")
    async with served.http.get(artifact.url) as response:
        assert response.status == 200
        assert await response.read() == PNG
        assert response.headers["Content-Type"] == "image/png"
        assert "immutable" in response.headers["Cache-Control"]
        assert response.headers["Content-Disposition"] == "inline"
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        etag = response.headers["ETag"]
    async with served.http.get(artifact.url, headers={"If-None-Match": etag}) as response:
        assert response.status == 304, "being served does not make it another file"
    async with served.http.head(artifact.url) as response:
        assert response.status == 200
        assert int(response.headers["Content-Length"]) == len(PNG)


async def test_an_answer_names_the_files_that_its_calls_made(serve_script, store):
    @tool
    def draw() -> Output:
        """Draw."""
        artifact = store.put(PNG, "png")
        return Output(f"Saved as {artifact.url}.", (artifact,))

    script = [call("draw"), "Here it is."]
    served = await serve_script(script, [draw], artifacts=store)
    _, body = await served.chat(server_tools=["draw"])
    [ran] = body["caesura"]["calls"]
    [told] = ran["artifacts"]
    assert told == {"url": told["url"], "media_type": "image/png", "bytes": len(PNG)}
    assert ran["content"] == f"Saved as {told['url']}."
    async with served.http.get(told["url"]) as response:
        assert await response.read() == PNG


@pytest.mark.parametrize(
    ("suffix", "media_type"),
    [("svg", "image/svg+xml"), ("wav", "audio/wav"), ("txt", "text/plain; charset=utf-8")],
)
async def test_no_file_may_run_scripts(serve_script, store, suffix, media_type):
    served = await serve_script([], artifacts=store)
    artifact = store.put(b"<svg xmlns='http://www.w3.org/2000/svg'><script/></svg>", suffix)
    async with served.http.get(artifact.url) as response:
        assert response.headers["Content-Type"] == media_type
        assert response.headers["Content-Security-Policy"] == "sandbox; default-src 'none'"


async def test_a_part_of_a_file(serve_script, store):
    served = await serve_script([], artifacts=store)
    artifact = store.put(PNG, "wav")
    async with served.http.get(artifact.url, headers={"Range": "bytes=10-19"}) as response:
        assert response.status == 206
        assert await response.read() == PNG[10:20]
        assert response.headers["Content-Range"] == f"bytes 10-19/{len(PNG)}"
        assert response.headers["Content-Security-Policy"]


@pytest.mark.parametrize(
    "name",
    [
        "0" * 24 + ".png",
        "x",
        "..%2F..%2Fetc%2Fpasswd",
        "%2Fetc%2Fpasswd",
        "..%5Csecret",
        "0" * 24 + ".png%00",
        "%FF",
    ],
)
async def test_what_is_not_there(serve_script, store, tmp_path, name):
    (tmp_path / "secret").write_bytes(b"secret")
    store.put(PNG, "png")
    served = await serve_script([], artifacts=store)
    async with served.http.get(f"{served.url}/artifacts/{name}") as response:
        assert response.status == 404
        error = (await response.json())["error"]
        assert error["code"] == "artifact_not_found"
        assert error["type"] == "invalid_request_error"


async def test_without_a_store_there_is_no_route(serve_script):
    served = await serve_script([])
    async with served.http.get("/artifacts/" + "0" * 24 + ".png") as response:
        assert response.status == 404
        assert (await response.json())["error"]["code"] == "unknown_url"


async def test_a_key_is_asked_for_like_anywhere(serve_script, store):
    served = await serve_script([], artifacts=store, api_key="key")
    artifact = store.put(PNG, "png")
    async with served.http.get(artifact.url) as response:
        assert response.status == 401
    headers = {"Authorization": "Bearer key"}
    async with served.http.get(artifact.url, headers=headers) as response:
        assert response.status == 200
        assert response.headers["Cache-Control"].startswith("private")


async def test_files_are_counted_under_one_route(serve_script, store):
    served = await serve_script([], artifacts=store)
    for content in (b"a", b"b"):
        async with served.http.get(store.put(content, "txt").url) as response:
            assert await response.read() == content
    assert 'route="/artifacts/{name}",status="200"} 2.0' in await served.metrics()
