"""Corpora: what is added, changed and removed, and what is found."""

import json
import os
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from caesura.tools.errors import Unavailable
from caesura.tools.search import corpus as corpora_module
from caesura.tools.search.corpus import (
    Corpus,
    CorpusError,
    Reader,
    corpora,
    corpus_path,
    delete_corpus,
    files_at,
    open_to_read,
    search_now,
)
from caesura.tools.search.reading import ReadError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return corpus_path(tmp_path, "mine")


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def found(path: Path, query: str, limit: int = 5) -> list[str]:
    connection = open_to_read(path)
    hits = search_now(connection, query, limit)
    connection.close()
    return [hit.text for hit in hits]


def stamp(path: Path) -> str:
    connection = open_to_read(path)
    (value,) = connection.execute("SELECT value FROM stamp").fetchone()
    connection.close()
    return value


def test_adding_is_idempotent_by_content(path: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "a.txt", "an oak tree")
    with Corpus(path) as corpus:
        assert corpus.add(file, "a.txt") == "added"
        before = stamp(path)
        os.utime(file, (0, 0))
        assert corpus.add(file, "a.txt") == "unchanged"
        assert stamp(path) == before
        file.write_text("a beech tree")
        assert corpus.add(file, "a.txt") == "changed"
        assert stamp(path) != before
        assert [(row.path, row.passages) for row in corpus.files()] == [(file, 1)]
    assert found(path, "oak") == []
    assert found(path, "beech") == ["a beech tree"]


def test_other_fields_of_the_same_json_lines_are_a_change(path: Path, tmp_path: Path) -> None:
    from caesura.tools.search.reading import Fields

    file = write(tmp_path / "a.jsonl", json.dumps({"text": "one", "body": "two"}))
    with Corpus(path) as corpus:
        assert corpus.add(file, "a") == "added"
        assert corpus.add(file, "a", Fields(text="body")) == "changed"
    assert found(path, "two") == ["two"]


def test_a_file_that_turns_bad_leaves_what_there_was(path: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", json.dumps({"text": "good"}))
    with Corpus(path) as corpus:
        corpus.add(file, "a")
        file.write_text(json.dumps({"text": "newer"}) + "\nbad")
        with pytest.raises(ReadError, match="line 2"):
            corpus.add(file, "a")
        assert corpus.add(write(tmp_path / "b.txt", "next"), "b") == "added"
    assert found(path, "good") == ["good"]
    assert found(path, "newer") == []


def test_an_interrupt_leaves_a_whole_corpus(path: Path, tmp_path: Path, monkeypatch) -> None:
    def interrupted(*_):
        yield from ()
        raise KeyboardInterrupt

    with Corpus(path) as corpus:
        corpus.add(write(tmp_path / "a.txt", "first"), "a")
        monkeypatch.setattr("caesura.tools.search.corpus.read_passages", interrupted)
        with pytest.raises(KeyboardInterrupt):
            corpus.add(write(tmp_path / "b.txt", "second"), "b")
        with pytest.raises(KeyboardInterrupt):
            corpus.add(write(tmp_path / "a.txt", "other"), "a")
    assert found(path, "first") == ["first"]
    with Corpus(path) as corpus:
        assert [row.source for row in corpus.files()] == ["a"]
        corpus._connection.execute("INSERT INTO words (words) VALUES ('integrity-check')")


def test_a_killed_writer_leaves_a_whole_corpus(path: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", '{"text": "some words"}\n' * 2_000)
    script = (
        "import os, sys\nfrom pathlib import Path\n"
        "from caesura.tools.search import corpus\n"
        "read = corpus.read_passages\n"
        "def dying(*arguments):\n"
        "    for number, passage in enumerate(read(*arguments)):\n"
        "        if number == 1500: os._exit(9)\n"
        "        yield passage\n"
        "corpus.read_passages = dying\n"
        "corpus.Corpus(Path(sys.argv[1])).add(Path(sys.argv[2]), 'a')\n"
    )
    ended = subprocess.run([sys.executable, "-c", script, path, file], check=False)
    assert ended.returncode == 9
    with Corpus(path) as corpus:
        assert corpus.files() == []
        assert corpus.add(file, "a") == "added"
        assert corpus.files()[0].passages == 2_000


def test_removing_and_pruning(path: Path, tmp_path: Path) -> None:
    files = [write(tmp_path / name, f"text {name}") for name in ("d/a.txt", "d/e/b.txt", "c.txt")]
    with Corpus(path) as corpus:
        for file in files:
            corpus.add(file, file.name)
        files[0].unlink()
        files[2].unlink()
        assert corpus.prune([tmp_path / "d"]) == 1
        assert [row.source for row in corpus.files()] == ["c.txt", "b.txt"]
        assert corpus.remove([tmp_path / "d"]) == 1
        (tmp_path / "itself").symlink_to(tmp_path / "itself")
        assert corpus.remove([tmp_path / "nothing", tmp_path / "itself"]) == 0
        assert [row.source for row in corpus.files()] == ["c.txt"]


def test_files_that_cannot_be_read(path: Path, tmp_path: Path) -> None:
    with Corpus(path) as corpus:
        with pytest.raises(ReadError, match="the file does not exist"):
            corpus.add(tmp_path / "none.txt", "a")
        with pytest.raises(ReadError, match="not a regular file"):
            corpus.add(tmp_path, "a")
        bad = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.txt"))
        bad.write_text("text")
        with pytest.raises(ReadError, match="not valid UTF-8"):
            corpus.add(bad, "a")


def test_which_files_are_meant(tmp_path: Path) -> None:
    for name in ("d/a.md", "d/e/b.HTML", "d/.hidden.md", "d/.git/c.md", "d/x.png", "y.png"):
        write(tmp_path / name, "")
    (tmp_path / "d" / "loop").symlink_to(tmp_path / "d")
    (tmp_path / "d" / "itself").symlink_to(tmp_path / "d" / "itself")
    assert files_at([tmp_path / "d", tmp_path / "y.png", tmp_path / "d/a.md"]) == {
        tmp_path / "d/a.md": "d/a.md",
        tmp_path / "d/e/b.HTML": "d/e/b.HTML",
        tmp_path / "y.png": "y.png",
    }


@pytest.mark.parametrize("name", ["", "../x", "a/b", "a.b", "x" * 65, "-a", "\0", "é"])
def test_what_is_no_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(CorpusError, match="invalid corpus name"):
        corpus_path(tmp_path, name)


def test_corpora_by_name(tmp_path: Path) -> None:
    for name in ("b", "a", "bundled"):
        Corpus(corpus_path(tmp_path, name)).close()
    write(tmp_path / "corpora" / "b.bm25s-x" / "y", "")
    assert corpora(tmp_path) == ["a", "b"]
    assert delete_corpus(corpus_path(tmp_path, "b"))
    assert sorted(path.name for path in (tmp_path / "corpora").iterdir()) == [
        "a.sqlite",
        "bundled.sqlite",
    ]


def test_what_is_no_corpus(path: Path) -> None:
    with pytest.raises(CorpusError, match="the corpus 'mine' does not exist"):
        open_to_read(path)
    write(path, "this is a text and no data base, whatever its name is")
    with pytest.raises(CorpusError, match="cannot be used"):
        Corpus(path)
    path.unlink()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA application_id = 5")
    connection.close()
    with pytest.raises(CorpusError, match="is not a corpus"):
        Corpus(path)
    path.unlink()
    Corpus(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(CorpusError, match="another version"):
        open_to_read(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_that_may_not_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(CorpusError, match="cannot be created"):
        Corpus(corpus_path(tmp_path, "mine"))


def test_two_writers_make_one_corpus(path: Path, tmp_path: Path) -> None:
    with Corpus(path) as one, Corpus(path) as other:
        one.add(write(tmp_path / "a.txt", "a"), "a")
        other.add(write(tmp_path / "b.txt", "b"), "b")
        assert len(one.files()) == len(other.files()) == 2


ARTICLES = {
    "iron": "Iron melts at 1538 degrees.",
    "gold": "Gold melts at 1064 degrees and is yellow.",
    "yellow": "A colour. Sulphur has it too.",
    "café": "Coffee and naïve talk.",
    "syntax": 'It says AND OR NOT NEAR("x") title: text* ^ {a b} + - here.',
}


def test_a_full_disk_is_told_and_leaves_what_can_be_used_later(path: Path, monkeypatch) -> None:
    with monkeypatch.context() as patch:
        schema = replace(corpora_module.SCHEMA, settings=("PRAGMA max_page_count = 2",))
        patch.setattr(corpora_module, "SCHEMA", schema)
        with pytest.raises(CorpusError, match="disk is full"):
            Corpus(path)
    Corpus(path).close()


@pytest.fixture
def filled(path: Path, tmp_path: Path) -> Path:
    lines = [json.dumps({"title": title, "text": text}) for title, text in ARTICLES.items()]
    with Corpus(path) as corpus:
        corpus.add(write(tmp_path / "articles.jsonl", "\n".join(lines)), "articles.jsonl")
    return path


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("What is the melting point of gold?", "gold"),
        ("melted iron", "iron"),
        ("yellow", "yellow"),  # in a title it counts more
        ("CAFE", "café"),
        ("naive", "café"),
        ("sulph", "yellow"),
        ('"NEAR" (title:', "syntax"),
        ("gold OR iron NOT 1064", "gold"),
    ],
)
def test_what_is_found_first(filled: Path, query: str, first: str) -> None:
    assert found(filled, query)[0] == ARTICLES[first]


@pytest.mark.parametrize("query", ["", "xyzzy", '"', "*", "()", "\0", "\ud800", "?!"])
def test_what_finds_nothing(filled: Path, query: str) -> None:
    assert found(filled, query) == []


def test_no_more_than_asked_for(filled: Path) -> None:
    assert len(found(filled, "melts yellow it coffee", 2)) == 2


async def test_a_reader_sees_what_is_added_and_cannot_write(filled: Path, tmp_path: Path) -> None:
    reader = Reader(filled)
    assert await reader.search("zinc", 3) == []
    with Corpus(filled) as corpus:
        corpus.add(write(tmp_path / "z.txt", "zinc"), "z.txt")
    (hit,) = await reader.search("zinc", 3)
    assert (hit.title, hit.source, hit.text) == ("z", "z.txt", "zinc")
    with pytest.raises(Unavailable, match="readonly"):
        await reader.run(lambda connection: connection.execute("DELETE FROM files"))
    await reader.aclose()
    await reader.aclose()


async def test_a_search_that_does_not_end_is_given_up(filled: Path, monkeypatch) -> None:
    monkeypatch.setattr("caesura.tools.search.corpus.MAX_SECONDS", 0.05)
    reader = Reader(filled)
    endless = (
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
    )
    with pytest.raises(Unavailable, match="interrupted"):
        await reader.run(lambda connection: connection.execute(endless).fetchall())
    await reader.aclose()


def test_what_changes_nothing_leaves_the_stamp_as_it_is(path: Path, tmp_path: Path) -> None:
    def stamp() -> str:
        with corpora_module.reading(path) as connection:
            return str(connection.execute("SELECT value FROM stamp").fetchone()[0])

    file = write(tmp_path / "a.txt", "Oaks are trees.")
    with Corpus(path) as corpus:
        corpus.add(file, "a.txt")
        before = stamp()
        corpus.add(file, "a.txt")
        assert corpus.remove([tmp_path / "other.txt"]) == corpus.prune([tmp_path]) == 0
        assert stamp() == before
        assert corpus.remove([file]) == 1
    assert stamp() != before
