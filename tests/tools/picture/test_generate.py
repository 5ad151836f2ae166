"""generate_image: what it must be told, and a service that it asks."""

import base64
import json

import pytest
from aiohttp import web

from caesura.tools.picture.diffusion import MIN_SIDE
from caesura.tools.services import SetupError

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4z8DwHwAFAAH/iZk9HQAAAABJRU5ErkJggg=="
)
SAVED = r"Saved as /artifacts/[0-9a-f]{24}\.png: PNG picture, 1 x 1\."


class Service:
    """A service of pictures on the loopback, and what it was asked."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/v1"
        self.asked: list[dict] = []
        self.keys: list[str | None] = []
        self.answer: object = {"data": [{"b64_json": base64.b64encode(PNG).decode()}]}
        self.file = PNG

    async def images(self, request: web.Request) -> web.Response:
        self.keys.append(request.headers.get("Authorization"))
        self.asked.append(json.loads(await request.read()))
        return web.json_response(self.answer)

    async def picture(self, request: web.Request) -> web.Response:
        self.keys.append(request.headers.get("Authorization"))
        return web.Response(body=self.file, content_type="image/png")


@pytest.fixture
async def service(unused_tcp_port_factory):
    served = Service(unused_tcp_port_factory())
    app = web.Application()
    app.router.add_post("/v1/images/generations", served.images)
    app.router.add_get("/picture.png", served.picture)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", int(served.url.split(":")[2].split("/")[0])).start()
    yield served
    await runner.cleanup()


async def asking(using, service, **settings):
    return await using(
        "generate_image", allow_private=True, backend="endpoint", url=service.url, **settings
    )


async def test_a_picture_in_the_answer(using, service):
    call = await asking(using, service, model="painter", width=256, height=128)
    result = await call(prompt="a red bird")
    assert result.error is None, result.content
    assert result.artifacts[0].path.read_bytes() == PNG
    assert service.asked == [
        {"model": "painter", "prompt": "a red bird", "n": 1, "size": "256x128"}
    ]


async def test_sizes_and_seed(using, service):
    call = await asking(using, service, max_side=800)
    await call(prompt="a", width=9999, height=1, seed=7)
    await call(prompt="a", width=333, height=-5)
    assert [each["size"] for each in service.asked] == [
        f"800x{MIN_SIDE}",
        f"328x{MIN_SIDE}",
    ]
    assert service.asked[0]["seed"] == 7


async def test_a_picture_behind_a_url_is_fetched_without_the_key(using, service, monkeypatch):
    monkeypatch.setenv("PAINTER_KEY", "secret")
    service.answer = {"data": [{"url": service.url.replace("/v1", "/picture.png")}]}
    call = await asking(using, service, api_key_env="PAINTER_KEY")
    result = await call(prompt="a red bird")
    assert result.error is None, result.content
    assert service.keys == ["Bearer secret", None]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({"data": []}, "without a picture"),
        ([], "without a picture"),
        ({"data": [{"b64_json": "no base64!"}]}, "not valid base64"),
        ({"data": [{"b64_json": "AAAA"}]}, "not a PNG, JPEG or WebP"),
        ({"data": [{"url": "file:///etc/passwd"}]}, "must begin with http"),
    ],
)
async def test_answers_that_are_no_picture(using, service, answer, told):
    service.answer = answer
    result = await (await asking(using, service))(prompt="a red bird")
    assert result.error == "failed"
    assert told in result.content


@pytest.mark.parametrize(
    "arguments", [{}, {"prompt": ""}, {"prompt": "a" * 5000}, {"prompt": "a", "width": "wide"}]
)
async def test_arguments(using, service, arguments):
    result = await (await asking(using, service))(**arguments)
    assert result.error == "invalid_arguments"
    assert service.asked == []


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, "no back end"),
        ({"backend": "diffusers"}, "no back end"),
        ({"backend": "diffusers", "directory": "/nowhere"}, "/nowhere has no model_index.json"),
        ({"backend": "endpoint"}, "has no url"),
        ({"backend": "endpoint", "url": "ftp://example.com"}, "must begin with http"),
        ({"backend": "endpoint", "url": "http://127.0.0.1:9/v1"}, "allow_private = true"),
        ({"backend": "endpoint", "url": "http://localhost:9/v1"}, "allow_private = true"),
        (
            {"backend": "endpoint", "url": "https://example.com/v1", "api_key_env": "NO_SUCH_KEY"},
            "NO_SUCH_KEY is not set",
        ),
        ({"backend": "magic"}, "backend"),
    ],
)
async def test_what_is_told_at_the_start(using, settings, told):
    with pytest.raises(SetupError, match=told):
        await using("generate_image", **settings)


async def test_an_address_that_is_private_by_its_name_only(using):
    call = await using("generate_image", backend="endpoint", url="http://ip6-localhost:9/v1")
    result = await call(prompt="a red bird")
    assert result.error == "failed"
