"""The tools `web_search` and `web_fetch`, against servers on this machine."""

import json
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from caesura.tools.search.page import page_in
from caesura.tools.search.results import Hit, results_text
from caesura.tools.search.web import Domains, WebSearch, _head, pages_in
from caesura.tools.services import SetupError

JSON = {"Content_Type": "application/json"}
FOUND = [
    {"title": "Oak", "url": "https://trees.example/oak", "content": "Oaks bear acorns."},
    {"title": "No page", "url": "ftp://trees.example/x", "content": "Not of the web."},
    {"title": "Acorn", "url": "https://wiki.example/a?b=(c)", "content": "A nut.\n\n[9] Not one."},
    {"title": "Beech", "url": "https://old.trees.example/beech", "content": "Smooth bark."},
]
OAK = Hit("Oak", "https://trees.example/oak", "Oaks bear acorns.")
ACORN = Hit("Acorn", "https://wiki.example/a?b=(c)", "A nut. [9] Not one.")
BEECH = Hit("Beech", "https://old.trees.example/beech", "Smooth bark.")


async def test_searxng_is_asked(using, site) -> None:
    site.says("/search", json.dumps({"results": FOUND}).encode(), **JSON)
    call = await using("web_search", url=site.url("/"), allow_private=True)
    result = await call(query="what bears acorns?")
    assert result.error is None
    assert dict(site.seen[0].query) == {"q": "what bears acorns?", "format": "json"}
    assert result.content.startswith("[1] Oak\nhttps://trees.example/oak\nOaks bear acorns.\n\n[2]")
    assert pages_in(result.content) == [OAK, ACORN, BEECH]


async def test_brave_is_asked_with_its_key(using, site, monkeypatch) -> None:
    monkeypatch.setenv("BRAVE", "sesame")
    found = [{"title": "Oak", "url": "https://trees.example/oak", "description": "A tree."}]
    site.says("/res/v1/web/search", json.dumps({"web": {"results": found}}).encode(), **JSON)
    settings = {"backend": "brave", "key": "${BRAVE}", "url": site.url(), "results": 7}
    call = await using("web_search", allow_private=True, **settings)
    assert pages_in((await call(query="oak")).content) == [Hit("Oak", found[0]["url"], "A tree.")]
    assert site.seen[0].headers["X-Subscription-Token"] == "sesame"
    assert (site.seen[0].query["q"], site.seen[0].query["count"]) == ("oak", "7")


async def test_a_service_within_the_network_needs_permission(using, site) -> None:
    call = await using("web_search", url=site.url("/"))
    result = await call(query="oak")
    assert (result.error, site.seen) == ("failed", [])
    assert "has no public address" in result.content


@pytest.mark.parametrize(
    ("settings", "missing"),
    [
        ({}, "needs url"),
        ({"backend": "brave"}, "needs key"),
        ({"backend": "http"}, "needs [tools.web_search.http]"),
        ({"url": "file:///etc"}, "must begin with http"),
        ({"backend": "brave", "key": "${NOT_SET}"}, "NOT_SET is not set"),
    ],
)
async def test_what_is_missing_is_told(using, settings: dict[str, Any], missing: str) -> None:
    with pytest.raises(SetupError) as told:
        await using("web_search", **settings)
    assert missing in str(told.value)


async def test_only_pages_of_the_wanted_domains_are_shown(using, site) -> None:
    site.says("/search", json.dumps({"results": FOUND}).encode(), **JSON)
    call = await using("web_search", url=site.url("/"), allow_private=True)
    await call(query="oak")  # makes the tool
    search = call.tool.function
    assert isinstance(search, WebSearch)
    assert pages_in(await search("oak", allowed_domains=["trees.example"])) == [OAK, BEECH]
    assert site.seen[-1].query["q"] == "oak site:trees.example"
    both = ["trees.example", "https://wiki.example/"]
    assert pages_in(await search("oak", both, ["old.trees.example"])) == [OAK, ACORN]
    wanted = "oak (site:trees.example OR site:wiki.example/) -site:old.trees.example"
    assert site.seen[-1].query["q"] == wanted
    assert pages_in(await search("oak", ["nowhere.example"])) == []
    refused = await call(query="oak", allowed_domains=["trees.example"])
    assert refused.error == "invalid_arguments"  # the model does not choose them


@pytest.mark.parametrize(
    ("address", "domain", "holds"),
    [
        ("https://a.example/x", "a.example", True),
        ("https://b.a.example/x", "A.example", True),
        ("https://ba.example/x", "a.example", False),
        ("https://a.example.evil.example/", "a.example", False),
        ("https://a.example/docs/x", "a.example/docs", True),
        ("https://a.example/docsx", "a.example/docs", False),
        ("https://[broken/", "a.example", False),
    ],
)
def test_domains(address: str, domain: str, holds: bool) -> None:
    assert Domains((domain,)).hold(address) == holds
    assert Domains((), (domain,)).hold(address) != holds


TEXT = st.text(max_size=300)


@given(st.lists(st.builds(Hit, TEXT, st.just("https://a.example/?q=1"), TEXT), max_size=6))
def test_no_text_of_a_page_passes_for_another_page(hits: list[Hit]) -> None:
    pages = pages_in(results_text("oak", hits, 400, _head))
    assert len(pages) <= len(hits)
    assert all(page.source == "https://a.example/?q=1" for page in pages)
    assert not hits or len(pages) >= 1


async def test_a_page_is_read(using, site) -> None:
    page = (
        b"<title>Oak</title><script>x()</script><nav>Home</nav>"
        b"<h1>Oaks</h1><p>Oaks  bear acorns.</p>"
    )
    site.says("/oak", page, Content_Type="text/html; charset=utf-8")
    call = await using("web_fetch", allow_private=True)
    result = await call(url=site.url("/oak"))
    assert result.error is None
    assert page_in(result.content) == ("Oak", site.url("/oak"), "# Oaks\n\nOaks bear acorns.")
    assert (await call.tool.function(site.url("/oak"), max_tokens=2)).endswith(
        "# Oaks\n\n [cut: 25 characters in all]"
    )


@pytest.mark.parametrize(
    ("kind", "body", "told"),
    [
        ("text/plain", "täxt".encode(), "täxt"),
        ("application/json", b'{"a": 1}', '{"a": 1}'),
        ("application/json", b"{", "error: the page cannot be read: it is not valid JSON"),
        ("image/png", b"x", "error: 127.0.0.1 did not answer with text/html"),
    ],
)
async def test_texts_are_read_and_nothing_else(using, site, kind, body, told) -> None:
    site.says("/page", body, Content_Type=kind)
    call = await using("web_fetch", allow_private=True)
    content = (await call(url=site.url("/page"))).content
    assert told in content
    assert content.startswith("error: ") == told.startswith("error: ")


async def test_no_page_within_the_network_is_read(using, site) -> None:
    call = await using("web_fetch")
    for url in (site.url("/"), "file:///etc/passwd", "http://127.1/"):
        assert (await call(url=url)).error == "failed"
    assert site.seen == []


async def test_a_redirect_does_not_leave_the_wanted_domains(using, site) -> None:
    async def away(request: web.Request) -> web.Response:
        raise web.HTTPFound(site.url("/secret", "localhost"))

    site.answers["/page"] = away
    call = await using("web_fetch", allow_private=True)
    assert "secret" in (await call(url=site.url("/page"))).content
    fetch = call.tool.function
    for domains in ({"allowed_domains": ["127.0.0.1"]}, {"blocked_domains": ["localhost"]}):
        with pytest.raises(RuntimeError, match="redirects to a domain that is not allowed"):
            await fetch(site.url("/page"), **domains)
    with pytest.raises(RuntimeError, match="of this domain are not allowed"):
        await fetch(site.url("/page"), allowed_domains=["localhost"])
