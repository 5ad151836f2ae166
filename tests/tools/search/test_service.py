"""Search services of any kind, against a server on this machine."""

import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from caesura.tools.net import HttpClient, HttpRefused
from caesura.tools.search.cache import Cache
from caesura.tools.search.service import Service, at
from caesura.tools.search.settings import HttpSettings


@pytest.fixture
def make(site, tmp_path: Path):
    def make(environment: dict[str, str] | None = None, **settings: Any) -> Service:
        settings["url"] = site.url(settings["url"])
        cache = Cache(tmp_path / "cache.sqlite", 3600)
        client = HttpClient(allow_private=True)
        return Service(HttpSettings(**settings), client, cache, environment or {})

    return make


JSON = {"Content_Type": "application/json"}


async def test_get_with_paths_and_a_key(make, site) -> None:
    answer = {
        "data": {
            "hits": [
                {"name": "Oak", "parts": ["An oak.", "Hard."], "at": {"url": "http://a/"}},
                {"name": 5, "parts": "Text", "at": None},
                {"name": None},
                "nothing",
                {"name": "Beech", "parts": "Smooth"},
            ]
        }
    }
    site.says("/s", json.dumps(answer).encode(), **JSON)
    service = make(
        {"KEY": "sesame"},
        url="/s?q={query}&n={limit}",
        headers={"Authorization": "Bearer ${KEY}"},
        results="data.hits",
        title="name",
        text="parts",
        source="at.url",
    )
    hits = await service.search('oak & "acorn" #1/2', 3)
    assert [(hit.title, hit.source, hit.text) for hit in hits] == [
        ("Oak", "http://a/", "An oak. Hard."),
        ("5", "127.0.0.1", "Text"),
        ("Beech", "127.0.0.1", "Smooth"),
    ]
    assert dict(site.seen[0].query) == {"q": 'oak & "acorn" #1/2', "n": "3"}
    assert site.seen[0].headers["Authorization"] == "Bearer sesame"
    assert await service.search('oak & "acorn" #1/2', 3) == hits
    assert len(site.seen) == 1
    await service.aclose()


async def test_post_with_a_body(make, site) -> None:
    bodies = []

    async def answer(request: web.Request) -> web.Response:
        bodies.append(await request.json())
        return web.json_response([{"title": "A", "text": "b", "url": "c"}])

    site.answers["/s"] = answer
    body = {"q": "about {query}", "max": "{limit}", "deep": [True, {"q": "{query}"}]}
    service = make(url="/s", body=body, results="")
    assert len(await service.search('say "hi" {limit}', 2)) == 1
    asked = 'say "hi" {limit}'
    assert bodies == [{"q": f"about {asked}", "max": 2, "deep": [True, {"q": asked}]}]
    await service.aclose()


async def test_nothing_there(make, site) -> None:
    site.says("/s", b'{"other": 1}', **JSON)
    service = make(url="/s?{query}")
    assert await service.search("oak", 3) == []
    assert await service.search("  ", 3) == []
    assert len(site.seen) == 1
    await service.aclose()


async def test_no_list(make, site) -> None:
    site.says("/s", b'{"results": {"a": 1}}', **JSON)
    service = make(url="/s?{query}")
    with pytest.raises(HttpRefused, match="answered without a list at 'results'"):
        await service.search("oak", 3)
    await service.aclose()


def test_a_key_that_would_break_a_header(make) -> None:
    with pytest.raises(ValueError, match="line break"):
        make({"KEY": "a\r\nHost: b"}, url="/{query}", headers={"K": "${KEY}"})


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab01", max_size=2), inner),
    max_leaves=20,
)


@given(values, st.text("ab01.²-", max_size=8))
def test_any_path_in_any_value(value, path) -> None:
    at(value, path)


def test_paths() -> None:
    value = {"a": [{"b": 1}, {"b": 2}], "0": 3}
    assert [at(value, path) for path in ("a.1.b", "0", "a.9.b", "a.-1.b", "a.b", "")] == [
        *(2, 3, None, None, None),
        value,
    ]
