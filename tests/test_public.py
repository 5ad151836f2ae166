"""What `import caesura` gives."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import caesura
from caesura import distribution

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]


def test_every_public_name_is_there() -> None:
    assert set(caesura.__all__) == set(caesura._HOME)
    for name in caesura.__all__:
        assert getattr(caesura, name).__name__ == name or name == "tool"


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no attribute 'agent_smith'"):
        caesura.agent_smith  # noqa: B018


@pytest.mark.parametrize("module", ["caesura", "caesura.runtime.testing", "caesura.tools"])
def test_nothing_but_the_adapter_needs_vllm(module: str) -> None:
    """A user's own tests run without an engine installed."""
    code = (
        f"import sys, {module}; assert not {{'vllm', 'torch', 'transformers'}} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


RARE = (
    *("aiohttp", "yarl", "mcp", "mcp_types", "jsonschema", "numpy", "opentelemetry", "starlette"),
    *("fastapi", "httpx", "multiprocessing", "psycopg", "typer", "rich"),
    *("caesura.runtime.launch", "caesura.runtime.recording", "caesura.runtime.server"),
    *("caesura.runtime.remote", "caesura.runtime.cli", "caesura.runtime.sdk.output"),
    *("caesura.tools.calculator", "caesura.tools.clock", "caesura.tools.net"),
    *("pydantic", "pydantic_core", "sqlite3", "tomllib", "importlib.metadata"),
    *("caesura.stores", "caesura.runtime.journal", "caesura.runtime.sdk.session"),
    *("caesura.tools.config", "caesura.tools.people", "caesura.tools.mcp"),
)
"""Modules that few agents need, and that take long to import."""


def test_an_agent_is_imported_without_what_few_programs_need() -> None:
    code = "import sys; from caesura import Agent; print(*sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    modules = set(told.stdout.split())
    assert "caesura.runtime.sdk.agent" in modules
    assert not modules & set(RARE)


def test_the_package_alone_imports_nothing() -> None:
    code = (
        "import sys; before = set(sys.modules); import caesura; print(*set(sys.modules) - before)"
    )
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert not {"asyncio", "pydantic", *RARE} & set(told.stdout.split())


def test_the_distribution_has_the_name_and_version_of_the_project() -> None:
    assert (distribution.NAME, caesura.__version__) == (PROJECT["name"], PROJECT["version"])


def test_a_clone_installs_extras_by_its_path_and_a_wheel_by_its_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert distribution.install("mcp", "ray") == f"pip install -e '{ROOT}[mcp,ray]'"
    monkeypatch.setattr(distribution, "_CLONE", tmp_path)
    assert distribution.install("mcp") == "pip install 'caesura-vllm[mcp]'"


SOURCES = [
    *ROOT.glob("*.md"),
    ROOT / "pyproject.toml",
    *(path for room in ("docs", "examples", "tests") for path in (ROOT / room).rglob("*.*")),
    *(path for room in (ROOT / "src" / "caesura").iterdir() for path in room.rglob("*.py")),
]
HINT = re.compile(
    r"""(?:'\.|caesura-vllm)\[([a-z,]+)\]"""  # a distribution with its extras
    r"""|\binstall\(["']([a-z]+)["']\)"""
)


def test_every_hint_names_an_extra_and_none_the_other_project() -> None:
    named: set[str] = set()
    for path in SOURCES:
        if path == Path(__file__) or path.suffix not in {".py", ".md", ".toml"}:
            continue
        text = path.read_text()
        assert not re.search(r"caesura\[[a-z]", text), f"{path}: `caesura` is another project"
        for hint in HINT.finditer(text):
            named |= set((hint[1] or hint[2]).split(","))
    assert {"cuda", "mcp", "search", "tracing", "postgres"} <= named <= EXTRAS.keys()
