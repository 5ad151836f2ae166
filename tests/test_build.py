"""The build: README's links outside of the repository, the commit, and what a wheel holds."""

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from caesura import distribution

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
CHANGELOG = (ROOT / "CHANGELOG.md").read_text()
ADDRESS = "https://git.example.com/someone/caesura"


@pytest.fixture(scope="module")
def build() -> Iterator[ModuleType]:
    spec = spec_from_file_location("caesura_setup", ROOT / "setup.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    path = list(sys.path)
    spec.loader.exec_module(module)
    yield module
    sys.path[:] = path
    sys.modules.pop("distribution", None)


TEXT = "See [the `guide`](docs/a.md#b), [a](https://a.example) and [below](#x). ![A](docs/a.png)"


def test_links_lead_to_the_files_of_this_version(build: ModuleType) -> None:
    at = f"{ADDRESS}/blob/v{distribution.__version__}"
    assert build.description(TEXT, ADDRESS) == (
        f"See [the `guide`]({at}/docs/a.md#b), [a](https://a.example) and [below](#x). "
        f"![A]({at.replace('blob', 'raw')}/docs/a.png)"
    )


def test_links_to_files_are_text_where_no_address_is_known(build: ModuleType) -> None:
    assert build.description(TEXT, None) == (
        "See the `guide`, [a](https://a.example) and [below](#x). "
    )


@pytest.mark.parametrize("address", [ADDRESS, None])
def test_no_relative_link_of_readme_is_left(build: ModuleType, address: str | None) -> None:
    left = re.findall(r"\]\(([^)\s]+)\)", build.description(README, address))
    assert [target for target in left if not target.startswith(("https://", "http://", "#"))] == []
    assert (ADDRESS in "".join(left)) == (address is not None)


def test_the_metadata_names_pages_only_of_a_published_repository(
    build: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CAESURA_REPOSITORY", raising=False)
    assert build.urls(build.repository()) == {}
    monkeypatch.setenv("CAESURA_REPOSITORY", f"{ADDRESS}/")
    assert build.urls(build.repository())["Changelog"] == (
        f"{ADDRESS}/blob/v{distribution.__version__}/CHANGELOG.md"
    )
    monkeypatch.setenv("CAESURA_REPOSITORY", "git@example.com:a/b")
    with pytest.raises(SystemExit, match="and must be like https"):
        build.repository()


def test_the_changelog_begins_with_this_version() -> None:
    newest = re.findall(r"^## (\S+) \((\d{4}-\d\d-\d\d|unreleased)\)$", CHANGELOG, re.MULTILINE)[0]
    assert newest[0] == distribution.__version__


def test_a_commit_that_is_named_counts_only_where_git_knows_none(
    build: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAESURA_COMMIT", "0123456789ab+changes")
    monkeypatch.setattr(build, "commit", lambda: "ba9876543210")
    assert build.built_commit() == "ba9876543210"
    monkeypatch.setattr(build, "commit", lambda: None)
    assert build.built_commit() == "0123456789ab+changes"
    monkeypatch.setenv("CAESURA_COMMIT", "main")
    with pytest.raises(SystemExit, match="CAESURA_COMMIT is 'main', and must be like"):
        build.built_commit()
    monkeypatch.setenv("CAESURA_COMMIT", "")
    assert build.built_commit() is None


def git(where: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.com"]
    command = ["git", "-C", str(where), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    root = tmp_path.resolve() / "clone"
    root.mkdir()
    git(root, "init", "-q")
    (root / "pyproject.toml").write_text("")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "one")
    return root


def test_a_clone_is_asked_for_its_commit(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distribution, "_CLONE", clone)
    head = git(clone, "rev-parse", "HEAD")[:12]
    assert distribution.commit() == head
    (clone / "new.txt").write_text("not tracked")
    assert distribution.commit() == head
    (clone / "pyproject.toml").write_text("[project]")
    assert distribution.commit() == f"{head}+changes"
    assert distribution.version_text().splitlines()[0].endswith(f", commit {head}+changes")


def test_a_commit_of_another_repository_is_not_taken(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = clone / "vendored"
    inner.mkdir()
    assert distribution.commit_of(inner) is None
    other = clone.parent / "other"
    other.mkdir()
    git(other, "init", "-q")
    head = git(clone, "rev-parse", "HEAD")[:12]
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))  # as a hook of git's sets it
    assert distribution.commit_of(clone) == head


def test_a_commit_is_not_known_without_git(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distribution, "_CLONE", clone)
    monkeypatch.setenv("PATH", str(clone))
    assert distribution.commit() is None
    monkeypatch.setattr(distribution, "installed_vllm", dict)
    assert distribution.version_text() == f"caesura {distribution.__version__}\nno vLLM"


def test_a_wheel_tells_what_its_build_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distribution, "_CLONE", tmp_path)
    monkeypatch.setattr(distribution, "__file__", str(tmp_path / "distribution.py"))
    assert distribution.commit() is None
    (tmp_path / distribution.COMMIT_FILE).write_text("0123456789ab\n")
    assert distribution.commit() == "0123456789ab"


@pytest.mark.slow
def test_a_wheel_holds_the_package_and_its_commit(tmp_path: Path) -> None:
    """It is built from what git tracks, and its command needs neither that nor vLLM."""
    sources, wheels, site = (tmp_path / name for name in ("sources", "wheels", "site"))
    subprocess.run(["git", "clone", "-q", str(ROOT), str(sources)], check=True)
    head = git(sources, "rev-parse", "HEAD")[:12]
    stale = sources / "build" / "lib" / "caesura" / "stale.py"
    stale.parent.mkdir(parents=True)
    stale.write_text("")
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    options = ["--no-deps", "--no-build-isolation", "--no-index", "-w", str(wheels)]
    subprocess.run([*pip, "wheel", *options, str(sources)], check=True)
    (wheel,) = wheels.iterdir()
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(site)
    files = {path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file()}
    assert {"caesura/runtime/static/index.html", "caesura/models/caesura-tiny/config.json"} <= files
    assert not {"caesura/stale.py", "tests/test_build.py"} & files
    assert (site / "caesura" / "COMMIT").read_text() == f"{head}\n"
    code = (
        f"import sys; sys.path.insert(0, {str(site)!r}); sys.modules['vllm'] = None; "
        "from caesura.runtime.cli import main; main()"
    )
    environment = {**os.environ, "PYTHONPATH": ""}
    for option, told in (("--version", f"commit {head}\n"), ("--help", "--install-completion")):
        command = [sys.executable, "-c", code, option]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
        )
        assert told in done.stdout
