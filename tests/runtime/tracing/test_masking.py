"""A mask over the texts of users, models and tools, before they are recorded or sent."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from caesura.runtime.errors import UsageError
from caesura.runtime.recording import catalog
from caesura.runtime.sdk.agent import Agent
from caesura.runtime.testing import ScriptedEngine, call, say, think
from caesura.runtime.tracing.content import CAPTURE
from caesura.runtime.tracing.masking import Mask, masking
from caesura.runtime.tracing.recorded import GivenTraces, recorded
from caesura.tools import tool
from caesura.tools.config.caesura_toml import Config
from caesura.tools.services import SetupError
from tests.kit.spans import Spans

SECRET = "open sesame"


@tool
async def tell(word: str) -> str:
    """Tell."""
    return f"{word} it is"


def hidden(text: str) -> str:
    return text.replace(SECRET, "***")


def broken(text: str) -> str:
    raise ValueError(text)


async def told(**options: Any) -> None:
    """A run with the secret in all that may be content."""
    script: Any = [think(f"Hm, {SECRET}.", call("tell", word=SECRET)), say(f"{SECRET}!")]
    async with Agent(ScriptedEngine(script, model="m"), [tell], **options) as agent:
        await agent.run(f"The word is {SECRET}.")


def configured(folder: Path, mask: str) -> Config:
    file = folder / "caesura.toml"
    file.write_text(f'[trace]\ncontent = true\npath = "traces.sqlite"\nmask = "{mask}"\n')
    return Config.load(file)


async def recording(folder: Path, mask: str) -> str:
    """The JSON of a run's recording with a mask of a module beside the configuration."""
    config = configured(folder, mask)
    async with recorded(ScriptedEngine([]), GivenTraces(), config, "t", "sdk") as recorder:
        await told(recorder=recorder)
    return json.dumps(list(catalog.entries(folder / "traces.sqlite", 1)))


async def test_the_configured_mask_is_over_all_that_is_recorded(tmp_path: Path) -> None:
    (tmp_path / "hiding_words.py").write_text(
        f"def hide(text):\n    return text.replace({SECRET!r}, '***')\n"
    )
    text = await recording(tmp_path, "hiding_words:hide")
    assert SECRET not in text
    assert text.count("***") >= 6  # prompt, thought, arguments, result, and what the model saw
    again = json.dumps(await told_after(tmp_path))
    assert SECRET in again  # the mask ended with its block


async def told_after(folder: Path) -> list[Any]:
    config = Config.model_validate({"path": folder / "caesura.toml"})
    given = GivenTraces(folder / "plain.sqlite", content=True)
    async with recorded(ScriptedEngine([]), given, config, "t", "sdk") as recorder:
        await told(recorder=recorder)
    return list(catalog.entries(folder / "plain.sqlite", 1))


async def test_a_mask_that_fails_drops_the_texts_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "failing_words.py").write_text("def fail(text):\n    raise ValueError(text)\n")
    text = await recording(tmp_path, "failing_words:fail")
    assert SECRET not in text
    assert "[dropped: the mask failing_words:fail failed: ValueError]" in text
    warned = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert [each.getMessage().count("failing_words:fail failed") for each in warned] == [1]
    assert SECRET not in caplog.text


@pytest.mark.parametrize("function", [hidden, broken])
async def test_what_is_sent_is_masked_too(
    spans: Spans, monkeypatch: pytest.MonkeyPatch, function: Callable[[str], str]
) -> None:
    monkeypatch.setenv(CAPTURE, "true")
    with masking(Mask(function, "mine")):
        await told(tracing=spans.processor)
    assert SECRET not in spans.text()
    assert ("***" in spans.text()) == (function is hidden)
    roles = [each["role"] for each in json.loads(messages(spans))]
    assert roles == ["user", "assistant", "tool"]


@pytest.mark.parametrize("before", [4090, 4096, 5000])
async def test_a_mask_sees_a_secret_that_lies_across_the_cut(
    spans: Spans, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    monkeypatch.setenv(CAPTURE, "true")
    text = "x" * before + SECRET
    script: Any = [think(text, call("tell", word=text)), say(text)]
    seen: list[str] = []

    def hide(text: str) -> str:
        seen.append(text)
        return hidden(text)

    with masking(Mask(hide, "mine")):
        async with Agent(
            ScriptedEngine(script, model="m"), [tell], tracing=spans.processor
        ) as agent:
            await agent.run(text)
    told = spans.text()
    assert "x" * 4000 in told
    assert "xo" not in told  # not even the first letter
    # The prompt, the thought and the answer, the call's arguments, and its result.
    assert {text, f"{text} it is", json.dumps({"word": text})} <= set(seen)


def messages(spans: Spans) -> str:
    return str((spans.named("chat")[1].attributes or {})["gen_ai.input.messages"])


def test_a_mask_returns_a_text(caplog: pytest.LogCaptureFixture) -> None:
    wrong: Any = lambda text: None  # noqa: E731
    mask = Mask(wrong, "mine")
    assert mask.text("a") == mask.text("b") == "[dropped: the mask mine failed: TypeError]"
    assert caplog.text.count("it returned NoneType, not a text") == 1


async def test_a_mask_that_is_none_is_refused(tmp_path: Path) -> None:
    async def later(text: str) -> str:
        return text

    cases: list[tuple[Any, str]] = [(3, "int"), (later, "an asynchronous one")]
    for given, kind in cases:
        with pytest.raises(UsageError, match=f"must be a plain function .* got {kind}"):
            Mask(given, "mine")
    with pytest.raises(SetupError, match="there is no module 'nowhere_at_all'"):
        await recording(tmp_path, "nowhere_at_all:hide")


def test_a_configuration_with_a_mask_has_to_be_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It imports a module."""
    configured(tmp_path, "mine:hide")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SetupError, match="caesura tools trust"):
        Config.load()
