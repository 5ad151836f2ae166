"""Pictures that tools make, as the model is shown them."""

from pathlib import Path
from typing import Any

import pytest

from caesura.runtime.run.media import Pictures
from caesura.runtime.sdk.agent import Agent
from caesura.runtime.testing import ScriptedEngine, call, say
from caesura.scheduler.messages import MediaRules, behind_results
from caesura.tools import tool
from caesura.tools.artifacts import ArtifactStore
from caesura.tools.result import Output

SEEN = {"type": "image_url", "image_url": {"url": "data:image/png;base64,eA=="}}
TEXT = {"type": "text", "text": "Drawn."}


@pytest.fixture
def draw(tmp_path: Path) -> Any:
    store = ArtifactStore(tmp_path)

    @tool
    def draw(suffix: str) -> Output:
        """Draw."""
        return Output("Drawn.", (store.put(b"x", suffix),))

    return draw


@pytest.mark.parametrize(
    ("limits", "suffix", "content"),
    [
        ({"image": 9}, "png", [TEXT, SEEN]),
        ({"image": 9}, "svg", "Drawn."),
        ({"audio": 9}, "png", "Drawn."),
        ({}, "png", "Drawn."),
    ],
)
async def test_a_result_shows_its_picture_to_a_model_that_sees(
    draw, limits, suffix, content
) -> None:
    engine = ScriptedEngine([call("draw", suffix=suffix), say("Nice.")], media=MediaRules(limits))
    async with Agent(engine, tools=[draw]) as agent:
        await agent.run("Draw.")
    assert engine.sessions[0].turns[1][0]["content"] == content


async def test_no_more_pictures_are_shown_than_the_engine_takes(tmp_path: Path) -> None:
    pictures = Pictures(MediaRules({"image": 3}), given=1)
    files = [ArtifactStore(tmp_path).put(bytes([number]), "png") for number in range(4)]
    files[0].path.unlink()
    content = await pictures.shown("Drawn.", files)
    assert [part["type"] for part in content] == ["text", "image_url"]
    assert len(await pictures.shown("Drawn.", files[2:])) == 2
    assert await pictures.shown("Drawn.", files[3:]) == "Drawn."


def test_results_of_a_turn_are_followed_by_their_pictures() -> None:
    asked = {"role": "user", "content": "Draw."}
    result = {"role": "tool", "tool_call_id": "a", "content": [TEXT, SEEN]}
    plain = {"role": "tool", "tool_call_id": "b", "content": "5"}
    assert behind_results([asked, result, plain, asked, result]) == [
        asked,
        {**result, "content": "Drawn."},
        plain,
        {"role": "user", "content": [SEEN]},
        asked,
        {**result, "content": "Drawn."},
        {"role": "user", "content": [SEEN]},
    ]
