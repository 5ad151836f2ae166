"""What `import caesura` gives."""

import subprocess
import sys

import pytest

import caesura


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
