"""The Wikipedia back end against a server on this machine that speaks the API's shapes."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from caesura.tools.net import HttpClient, HttpRefused, HttpUnavailable
from caesura.tools.search.cache import Cache
from caesura.tools.search.settings import WikipediaSettings
from caesura.tools.search.wikipedia import Wikipedia, user_agent

PAGES = {
    7: ("Oak", "An oak is a tree of the genus Quercus."),
    8: ("Cork oak", "The cork oak is an evergreen oak."),
    9: ("Oak Island", ""),
}


class Wiki:
    """Answers `action=query` as MediaWiki does."""

    def __init__(self, site) -> None:
        self.asked: list[dict[str, str]] = []
        self.agents: set[str] = set()
        self.failure: dict[str, Any] | None = None
        self.running = self.most_running = 0
        site.answers["/w/api.php"] = self.answer
        self.settings = WikipediaSettings(contact="ops@example.org", api_url=site.url("/w/api.php"))

    async def answer(self, request: web.Request) -> web.Response:
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        await asyncio.sleep(0.01)
        self.running -= 1
        query = dict(request.query)
        self.asked.append(query)
        self.agents.add(request.headers["User-Agent"])
        if self.failure is not None:
            return web.json_response(self.failure, headers={"Retry-After": "5"})
        assert (query["action"], query["format"], query["formatversion"]) == ("query", "json", "2")
        if query.get("list") == "search":
            return web.json_response(
                {"batchcomplete": True, "query": {"search": self.found(query)}}
            )
        pages = [self.page(int(each)) for each in query["pageids"].split("|")]
        return web.json_response({"batchcomplete": True, "query": {"pages": pages[::-1]}})

    def found(self, query: dict[str, str]) -> list[dict[str, Any]]:
        if "oak" not in query["srsearch"].lower():
            return []
        snippet = 'the <span class="searchmatch">oak</span> &amp; its acorns'
        return [
            {"ns": 0, "title": title, "pageid": number, "size": 9, "snippet": snippet}
            for number, (title, _) in PAGES.items()
        ][: int(query["srlimit"])]

    def page(self, number: int) -> dict[str, Any]:
        title, extract = PAGES[number]
        address = f"https://en.wikipedia.org/wiki/{title.replace(' ', '_')}"
        return {"pageid": number, "ns": 0, "title": title, "extract": extract, "fullurl": address}


@pytest.fixture
async def wiki(site):
    return Wiki(site)


@pytest.fixture
async def backend(wiki: Wiki, tmp_path: Path):
    client = HttpClient(
        allow_private=True, connections_per_host=2, user_agent=user_agent(wiki.settings)
    )
    backend = Wikipedia(wiki.settings, client, Cache(tmp_path / "cache.sqlite", 3600))
    yield backend
    await backend.aclose()


async def test_introductions_and_places_in_the_order_of_the_search(wiki, backend) -> None:
    hits = await backend.search('What is an "oak"?', 3)
    assert [(hit.title, hit.source, hit.text) for hit in hits] == [
        (
            "Oak",
            "https://en.wikipedia.org/wiki/Oak",
            "An oak is a tree of the genus Quercus.\nthe oak & its acorns",
        ),
        (
            "Cork oak",
            "https://en.wikipedia.org/wiki/Cork_oak",
            "The cork oak is an evergreen oak.\nthe oak & its acorns",
        ),
        ("Oak Island", "https://en.wikipedia.org/wiki/Oak_Island", "the oak & its acorns"),
    ]
    assert wiki.asked[0]["srsearch"] == "What is an oak"
    assert wiki.asked[0]["maxlag"] == "5"
    assert wiki.asked[1]["pageids"] == "7|8|9"
    (agent,) = wiki.agents
    assert agent.startswith("caesura/")
    assert agent.endswith("(ops@example.org)")


async def test_nothing_found_and_nothing_asked(wiki, backend) -> None:
    assert await backend.search("xyzzy", 3) == []
    assert len(wiki.asked) == 1
    assert await backend.search("?!", 3) == []
    assert len(wiki.asked) == 1


async def test_answers_are_kept(wiki, backend) -> None:
    first = await backend.search("oak", 2)
    assert await backend.search("OAK?", 2) == first
    assert len(wiki.asked) == 2
    await backend.search("oak", 1)
    assert len(wiki.asked) == 4


async def test_few_at_a_time(wiki, backend) -> None:
    await asyncio.gather(*(backend.search(f"oak {number}", 1) for number in range(8)))
    assert wiki.most_running <= 2


@pytest.mark.parametrize("code", ["maxlag", "ratelimited", "readonly"])
async def test_a_busy_wiki_asks_to_wait(wiki, backend, code: str) -> None:
    wiki.failure = {"error": {"code": code, "info": "Waiting for a database server"}}
    with pytest.raises(HttpUnavailable, match="is busy") as caught:
        await backend.search("oak", 1)
    assert caught.value.retry_after == 5.0
    wiki.failure = None
    assert len(await backend.search("oak", 1)) == 1


async def test_an_error_of_the_api(wiki, backend) -> None:
    wiki.failure = {"error": {"code": "badvalue", "info": "Unrecognized value"}}
    with pytest.raises(HttpRefused, match="answered: Unrecognized value"):
        await backend.search("oak", 1)


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"query": None},
        {"query": []},
        {"query": {"search": {}}},
        {"query": {"search": [1, None, {}]}},
        {"query": {"search": [{"pageid": "x"}]}},
        {"query": {"search": [{"pageid": 3}], "pages": [{"pageid": 4}, 5]}},
    ],
)
async def test_answers_of_another_shape_find_nothing(wiki, backend, answer) -> None:
    wiki.failure = answer
    assert await backend.search("oak", 3) == []


async def test_an_answer_that_is_no_object(wiki, backend) -> None:
    wiki.failure = []  # type: ignore[assignment]
    with pytest.raises(HttpRefused, match="unknown form"):
        await backend.search("oak", 3)


def test_the_address_follows_the_language(tmp_path: Path) -> None:
    settings = WikipediaSettings(contact="a@b", language="de")
    backend = Wikipedia(settings, HttpClient(), Cache(tmp_path / "c", 1))
    assert backend._url == "https://de.wikipedia.org/w/api.php"


async def test_the_cache_forgets(tmp_path: Path) -> None:
    from caesura.tools.search.results import Hit

    now = 1000.0
    cache = Cache(tmp_path / "d" / "c.sqlite", 60, max_answers=3, clock=lambda: now)
    hits = [Hit("a", "b", "c")]
    for number in range(5):
        now += 1
        await cache.put(f"k{number}", hits)
    assert [await cache.get(f"k{number}") for number in range(5)] == [None, None, hits, hits, hits]
    now += 58.5
    assert [await cache.get(f"k{number}") for number in range(5)] == [None, None, None, hits, hits]
    await cache.aclose()
    again = Cache(tmp_path / "d" / "c.sqlite", 60, clock=lambda: now)
    assert await again.get("k4") == hits
    await again.aclose()


async def test_a_cache_that_cannot_be_used_is_an_empty_one(tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite"
    path.write_text("no data base at all, but long enough to look like one" * 50)
    for place in (path, path / "below"):
        cache = Cache(place, 60)
        await cache.put("k", [])
        assert await cache.get("k") is None
        await cache.aclose()


async def test_a_spoilt_entry_is_no_entry(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "c.sqlite", 60)
    await cache.put("k", [])
    for text in ("{", "[1]", json.dumps([["a"]])):
        with cache._file.using() as connection:
            connection.execute("UPDATE answers SET hits = ?", (text,))
        assert await cache.get("k") is None
    await cache.aclose()
