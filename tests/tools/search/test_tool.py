"""The search tool as a model calls it, and as an operator sets it up."""

import importlib.util
import json
from pathlib import Path

import pytest

from caesura.tools import Dispatcher, Registry, ToolCall
from caesura.tools.config.toolset import Toolset
from caesura.tools.result import ToolResult
from caesura.tools.search.corpus import ARTICLES, Corpus, corpus_path
from caesura.tools.services import Services, SetupError


async def ask(services: Services, query: str, **settings: object) -> ToolResult:
    async with Toolset(services, {"search": settings}) as toolset:
        dispatcher = Dispatcher(Registry([toolset.make("search")]))
        return await dispatcher.run(ToolCall("c1", "search", json.dumps({"query": query})))


def add(services: Services, name: str, title: str, text: str) -> None:
    services.data.mkdir(exist_ok=True)
    file = services.data / f"{title}.jsonl"
    file.write_text(json.dumps({"title": title, "text": text}))
    with Corpus(corpus_path(services.data, name)) as corpus:
        corpus.add(file, file.name)


@pytest.mark.parametrize(
    ("question", "title", "fact"),
    [
        ("melting point of tungsten", "Metals > Tungsten", "3422"),
        ("Who invented the saxophone?", "Musical instruments > Saxophone", "Adolphe Sax"),
        ("largest moon of Saturn", "Planets > Saturn", "Titan"),
        ("vanilla hand pollination", "Spices > Vanilla", "1841"),
        ("capital cities on the Danube", "Rivers > Danube", "Vienna"),
        ("how old is the dome of the Pantheon", "Buildings > Pantheon", "126"),
        ("general sherman sequoia height", "Trees > Giant sequoia", "84 metres"),
        ("octopus hearts", "Animals > Octopus", "three hearts"),
        ("smallpox vaccine", "Inventions > Vaccination", "Jenner"),
    ],
)
async def test_the_corpus_that_is_brought_along(services, question, title, fact) -> None:
    result = await ask(services, question)
    assert result.error is None
    first = result.content.split("\n\n")[0]
    assert first.startswith(f"[1] {title} (")
    assert fact in first


def test_the_articles_are_short_and_free() -> None:
    texts = [article.read_text() for article in ARTICLES.glob("*.md")]
    articles = [each for text in texts for each in text.split("\n## ")[1:]]
    assert len(articles) == 47
    assert all(40 <= len(article.split()) <= 110 for article in articles)
    assert "CC0-1.0" in (ARTICLES / "LICENCE").read_text()


async def test_what_the_model_is_told(services) -> None:
    async with Toolset(services, {"search": {"about": "Search the shop's manual."}}) as toolset:
        spec = toolset.make("search").spec()["function"]
    assert spec["description"] == "Search the shop's manual."
    assert spec["parameters"]["required"] == ["query"]
    assert list(spec["parameters"]["properties"]) == ["query"]


async def test_nothing_found(services) -> None:
    result = await ask(services, "xyzzy plugh")
    assert (result.content, result.error) == ("no results for 'xyzzy plugh'", None)


async def test_ones_own_corpus_comes_first(services) -> None:
    assert "(planets.md)" in (await ask(services, "Jupiter")).content
    add(services, "default", "Jupiter", "Our printer is called so.")
    result = await ask(services, "Jupiter")
    assert result.content == "[1] Jupiter (Jupiter.jsonl:1)\nOur printer is called so."
    assert "(planets.md)" in (await ask(services, "Jupiter", corpus="bundled")).content


async def test_a_corpus_by_name_how_many_and_how_long(services) -> None:
    for number in range(6):
        add(services, "mine", f"T{number}", "oak " * 150)
    result = await ask(services, "oak", corpus="mine", results=4, result_tokens=100)
    assert result.content.count(".jsonl:1)") == 4
    assert 300 < len(result.content) <= 400


async def test_the_corpus_brought_along_follows_what_is_installed(services, monkeypatch) -> None:
    await ask(services, "oak")
    other = services.data / "articles"
    other.mkdir()
    (other / "only.md").write_text("# Only\n\nOak again.")
    monkeypatch.setattr("caesura.tools.search.corpus.ARTICLES", other)
    assert (await ask(services, "oak")).content == "[1] Only (only.md)\nOak again."
    assert (await ask(services, "tungsten")).content == "no results for 'tungsten'"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"corpus": "none"}, "the corpus 'none' does not exist"),
        ({"corpus": "../etc"}, "invalid corpus name"),
        ({"backend": "altavista"}, "backend"),
        ({"backend": "wikipedia"}, "needs contact"),
        ({"backend": "wikipedia", "wikipedia": {"contact": "a\nb"}}, "contact"),
        ({"backend": "wikipedia", "wikipedia": {"contact": "a@b", "api_url": "ftp://x/"}}, "http"),
        ({"backend": "http"}, "http"),
        ({"backend": "http", "http": {"url": "http://x/?q="}}, "write {query} in url or body"),
        ({"backend": "http", "http": {"url": "x/{query}"}}, "must begin with http"),
        (
            {
                "backend": "http",
                "http": {"url": "http://x/{query}", "headers": {"K": "${NO_SUCH}"}},
            },
            "environment variable NO_SUCH is not set",
        ),
        ({"result_tokens": 1}, "result_tokens"),
    ],
)
async def test_mistakes_are_told_at_the_start(services, settings, sentence) -> None:
    with pytest.raises(SetupError) as caught:
        Toolset(services, {"search": settings}).make("search")
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("package", ["bm25s", "tantivy"])
async def test_a_missing_package(services, monkeypatch, package) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == package else find_spec(name)
    )
    with pytest.raises(SetupError, match=r"pip install .*\[search\]'"):
        Toolset(services, {"search": {"backend": package}}).make("search")


async def test_a_directory_for_data_that_is_a_file(services) -> None:
    services.data.write_text("")
    with pytest.raises(SetupError, match="cannot be created"):
        Toolset(services).make("search")


def spoil(directory: Path) -> None:
    for path in directory.iterdir():
        path.write_bytes(b"spoilt" * 5_000)


async def test_a_corpus_that_is_spoilt_while_it_is_open(services) -> None:
    add(services, "mine", "T", "oak")
    async with Toolset(services, {"search": {"corpus": "mine"}}) as toolset:
        dispatcher = Dispatcher(Registry([toolset.make("search")]))
        spoil(services.data / "corpora")
        result = await dispatcher.run(ToolCall("c", "search", '{"query": "oak"}'))
    assert result.error == "failed"
    assert result.content.startswith("error: the corpus cannot be searched")
    assert "\n" not in result.content
