"""`caesura kb`: adding, listing, removing and searching corpora."""

import json
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from caesura.runtime.cli import kb
from caesura.tools.search.corpus import files_at


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place with no configuration but its own, where data goes too."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def docs(home: Path) -> Path:
    docs = home / "docs"
    (docs / "sub").mkdir(parents=True)
    (docs / "trees.md").write_text("# Trees\n\n## Oak\n\nThe oak bears acorns.\n")
    (docs / "sub" / "page.html").write_text("<title>Beech</title><p>The beech is smooth.")
    (docs / "picture.png").write_bytes(b"\x89PNG")
    return docs


def invoke(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(kb.app, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def test_add_search_and_list(docs: Path) -> None:
    code, output = invoke("add", docs)
    left_out = "left out, since their formats are not supported: 1 .png\n"
    assert (code, output) == (0, f"2 added; 2 passages in corpus 'default'\n{left_out}")
    code, output = invoke("search", "acorns")
    assert (code, output) == (0, "[1] Trees > Oak (docs/trees.md)\nThe oak bears acorns.\n")
    code, output = invoke("ls")
    assert code == 0
    assert str(docs / "sub" / "page.html") in output
    assert "2 files, 2 passages in corpus 'default'" in output


def test_adding_again_changes_what_has_changed(docs: Path) -> None:
    invoke("add", docs)
    (docs / "trees.md").write_text("# Trees\n\nFelled.")
    code, output = invoke("add", docs)
    assert code == 0
    assert "1 changed" in output
    assert "1 unchanged" in output
    assert invoke("search", "acorns")[1] == "no results for 'acorns'\n"


def test_what_is_gone_stays_until_it_is_pruned(docs: Path) -> None:
    invoke("add", docs)
    (docs / "trees.md").unlink()
    assert invoke("add", docs)[0] == 0
    assert "acorns" in invoke("search", "acorns")[1]
    code, output = invoke("add", "--prune", docs)
    assert code == 0
    assert "1 unchanged, 1 removed; 1 passages in corpus 'default'\n" in output


def test_a_whole_directory_that_is_gone(docs: Path) -> None:
    invoke("add", docs)
    docs.rename(docs.with_name("moved"))
    assert invoke("add", docs)[0] == 1
    code, output = invoke("add", "--prune", docs)
    assert (code, output) == (0, "2 removed; 0 passages in corpus 'default'\n")


def test_bad_files_are_told_and_the_others_added(docs: Path) -> None:
    (docs / "bad.txt").write_bytes(b"a\0b")
    code, output = invoke("add", docs, docs / "picture.png", docs / "none.md")
    assert code == 1
    assert f"skipped {docs / 'bad.txt'}: not a text: it contains zero bytes" in output
    assert f"skipped {docs / 'picture.png'}: unsupported format" in output
    assert f"skipped {docs / 'none.md'}: the file does not exist" in output
    assert "2 added, 3 skipped; 2 passages" in output


def test_json_lines_by_their_fields(home: Path) -> None:
    file = home / "qa.jsonl"
    file.write_text(json.dumps({"head": "Oak", "body": "Acorns.", "link": "http://a/"}))
    names = ["--title-field", "head", "--text-field", "body", "--source-field", "link"]
    assert invoke("add", file)[0] == 1
    assert invoke("add", *names, file)[0] == 0
    assert invoke("search", "acorns")[1] == "[1] Oak (http://a/)\nAcorns.\n"


def test_corpora_by_name(docs: Path) -> None:
    invoke("add", "--corpus", "trees", docs / "trees.md")
    invoke("add", docs / "sub")
    assert "other corpora: trees" in invoke("ls")[1]
    assert "Oak" in invoke("search", "--corpus", "trees", "oak")[1]
    assert "no results" in invoke("search", "--corpus", "trees", "beech")[1]


def test_removing(docs: Path) -> None:
    invoke("add", docs)
    assert invoke("rm", docs / "sub") == (0, "1 removed\n")
    assert invoke("rm", docs / "sub")[0] == 2
    assert invoke("rm", "--all") == (0, "deleted corpus 'default'\n")
    assert docs.exists()
    code, output = invoke("ls")
    assert code == 2
    assert "the corpus 'default' does not exist" in output


def test_without_a_corpus_the_one_brought_along_is_searched() -> None:
    code, output = invoke("search", "-n", "1", "tungsten melting point")
    assert code == 0
    assert output.startswith("[1] Metals > Tungsten (metals.md)\n")
    assert "[2]" not in output


def test_a_corpus_with_nothing_in_it_does_not_hide_the_one_brought_along(home: Path) -> None:
    assert invoke("add", home / "none.md")[0] == 1
    assert "Tungsten" in invoke("search", "tungsten")[1]
    (home / "own.md").write_text("Nothing about that.")
    assert invoke("add", home / "own.md")[0] == 0
    assert "no results" in invoke("search", "tungsten")[1]


def test_the_configured_directory_is_used(docs: Path, home: Path) -> None:
    (home / "caesura.toml").write_text('[data]\ndirectory = "elsewhere"\n')
    invoke("add", docs)
    assert (home / "elsewhere" / "corpora" / "default.sqlite").exists()
    assert not (home / "data").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["rm"], "name the files to remove, or give --all; got neither"),
        (["rm", "x", "--all"], "name the files to remove, or give --all; got both"),
        (["rm", "--all"], "there is no corpus 'default'"),
        (["add", "--corpus", "../x", "."], "invalid corpus name"),
        (["add", "--corpus", "bundled", "."], "cannot be changed: choose another name"),
        (["search", "--corpus", "none", "x"], "the corpus 'none' does not exist"),
    ],
)
def test_mistakes_are_told_in_a_line(arguments: list[str], sentence: str) -> None:
    code, output = invoke(*arguments)
    assert code in (1, 2)
    assert sentence in output
    assert "Traceback" not in output


@pytest.mark.parametrize("command", [["ls"], ["search", "oak"], ["rm", "docs"], ["add", "docs"]])
def test_a_corpus_that_is_spoilt(docs: Path, home: Path, command: list[str]) -> None:
    invoke("add", docs)
    file = home / "data" / "caesura" / "corpora" / "default.sqlite"
    data = bytearray(file.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    file.write_bytes(data)
    code, output = invoke(*command)
    assert code == 2
    assert "cannot be used" in output
    assert "Traceback" not in output


def test_an_interrupt_leaves_what_was_added(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from caesura.tools.search.corpus import Corpus

    add = Corpus.add

    def interrupted(self, path, *arguments):
        if path.name == "page.html":
            raise KeyboardInterrupt
        return add(self, path, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Corpus, "add", interrupted)
        code, output = invoke("add", docs)
    assert code == 130
    assert "1 added; 1 passages" in output
    assert "1 unchanged" in invoke("add", docs)[1]


def test_links_out_of_a_directory_are_not_followed(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (tmp_path / "secret.md").write_text("The password is 1234.")
    (docs / "mine.md").write_text("Mine.")
    (docs / "again.md").symlink_to(docs / "mine.md")
    (docs / "evil.md").symlink_to(tmp_path / "secret.md")
    others: Counter[str] = Counter()
    assert sorted(path.name for path in files_at([docs], others)) == ["again.md", "mine.md"]
    assert others == {"links out of the directory": 1}
