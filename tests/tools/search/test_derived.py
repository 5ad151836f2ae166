"""The indexes by bm25s and tantivy: built on demand, stored, and rebuilt after a change."""

import asyncio
import json
from pathlib import Path

import pytest

from caesura.tools.search.corpus import Corpus, Reader, corpus_path, delete_corpus
from caesura.tools.search.derived import Derived

KINDS = ("bm25s", "tantivy")
ARTICLES = {
    "Iron": "It melts at 1538 degrees.",
    "Gold": "It melts at 1064 degrees and is yellow.",
    "Sulphur": "It is yellow; it smells when it burns.",
}


def fill(path: Path, articles: dict[str, str]) -> None:
    file = path.parent / "articles.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"title": title, "text": text}) for title, text in articles.items()]
    file.write_text("\n".join(lines))
    with Corpus(path) as corpus:
        corpus.add(file, "articles.jsonl")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = corpus_path(tmp_path, "mine")
    fill(path, ARTICLES)
    return path


def built(path: Path, kind: str) -> list[Path]:
    return list(path.parent.glob(f"mine.{kind}-*"))


@pytest.mark.parametrize("kind", KINDS)
async def test_searching(path: Path, kind: str) -> None:
    backend = Derived(Reader(path), kind)
    hits = await backend.search("what is yellow, gold?", 2)
    assert [(hit.title, hit.source) for hit in hits] == [
        ("Gold", "articles.jsonl:2"),
        ("Sulphur", "articles.jsonl:3"),
    ]
    assert await backend.search("xyzzy", 2) == []
    assert await backend.search("?", 2) == []
    await backend.aclose()
    assert len(built(path, kind)) == 1


@pytest.mark.parametrize("kind", KINDS)
async def test_a_second_start_finds_it_built(path: Path, kind: str, monkeypatch) -> None:
    backend = Derived(Reader(path), kind)
    await backend.search("gold", 1)
    await backend.aclose()
    backend = Derived(Reader(path), kind)
    monkeypatch.setattr(backend._module, "build", None)
    assert [hit.title for hit in await backend.search("gold", 1)] == ["Gold"]
    await backend.aclose()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_change_rebuilds_it(path: Path, kind: str) -> None:
    backend = Derived(Reader(path), kind)
    assert await backend.search("zinc", 3) == []
    before = built(path, kind)
    fill(path, {**ARTICLES, "Zinc": "It is bluish."})
    assert [hit.title for hit in await backend.search("zinc", 3)] == ["Zinc"]
    assert len(built(path, kind)) == 1
    assert built(path, kind) != before
    await backend.aclose()
    delete_corpus(path)
    assert built(path, kind) == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("articles", [{}, {"": "?! ..."}])
async def test_a_corpus_without_words(tmp_path: Path, kind: str, articles) -> None:
    path = corpus_path(tmp_path, "mine")
    fill(path, articles)
    backend = Derived(Reader(path), kind)
    assert await backend.search("gold", 3) == []
    await backend.aclose()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_building_that_fails_is_tried_again(path: Path, kind: str, monkeypatch) -> None:
    def fail(*_) -> None:
        raise OSError("disk full")

    backend = Derived(Reader(path), kind)
    with monkeypatch.context() as patch:
        patch.setattr(backend._module, "build", fail)
        with pytest.raises(OSError, match="disk full"):
            await backend.search("gold", 1)
    assert len(await backend.search("gold", 1)) == 1
    assert not list(path.parent.glob(".mine*"))
    await backend.aclose()


def test_what_was_being_built_when_its_event_loop_ended_is_built_in_the_next(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = Derived(Reader(path), "bm25s")

    async def never(stamp: str) -> None:
        await asyncio.Event().wait()

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(backend.search("gold", 1), 0.1)

    async def search() -> list[str]:
        try:
            return [hit.title for hit in await backend.search("gold", 1)]
        finally:
            await backend.aclose()

    with monkeypatch.context() as patched:
        patched.setattr(backend, "_made", never)
        asyncio.run(give_up())
    assert asyncio.run(search()) == ["Gold"]
