"""Agents that `caesura.toml` describes: what it may say, and what is said of mistakes in it."""

from typing import Any

import pytest

from caesura.tools.config.caesura_toml import Config
from caesura.tools.services import SetupError

WHOLE = """
[tools.price]
function = "shop:price"

[mcpServers.files]
command = "files"

[agents.helper]
description = "helps"
instructions = "Help."
tools = ["price", "calculator", "files", "expert"]
limits = { max_turns = 3, max_tokens = 100, max_seconds = 2.5 }
sampling = { temperature = 0, stop = ["END"] }

[agents.expert]
instructions_file = "expert.md"
tools = ["clock", "price"]

[agents.alone]
adapter = "sql"
"""


def load(tmp_path: Any, text: str) -> Config:
    (tmp_path / "caesura.toml").write_text(text)
    return Config.load(tmp_path / "caesura.toml")


def test_all_of_it(tmp_path: Any) -> None:
    (tmp_path / "expert.md").write_text("Know all.\n")
    config = load(tmp_path, WHOLE)
    helper, expert = config.agents["helper"], config.agents["expert"]
    assert (helper.about, helper.instructions) == ("helps", "Help.")
    assert (helper.limits.max_turns, helper.limits.max_seconds) == (3, 2.5)
    assert (helper.sampling.temperature, helper.sampling.stop) == (0, ("END",))
    assert (expert.instructions, expert.about) == ("Know all.", "Know all.")
    assert config.agents["alone"].adapter == "sql"
    assert config.tools_of("helper") == ["price", "calculator", "files", "clock"]
    assert config.tools_of("alone") == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[agents.a]\ninstruction = 'x'", "[agents.a]: unknown key 'instruction'; did you mean"),
        ("agents = 3", "'agents' must be a table, [agents]"),
        ("[agents]\na = 3", "'a' must be a table, [agents.a]"),
        ("[agents.'two words']", "'two words' is no name of an agent: use 1 to 64"),
        ("[agents.clock]", "[agents.clock]: a tool is named 'clock' too: rename one"),
        ("[agents.a]\ntools = ['clok']", "[agents.a]: tools: unknown key 'clok'; did you mean"),
        ("[agents.a]\ntools = 'clock'", "[agents.a]: tools: "),
        ("[agents.a]\nlimits = {max_turns = 0}", "[agents.a]: limits.max_turns: input should be"),
        ("[agents.a]\nsampling = {top = 1}", "[agents.a]: sampling.top: "),
        ("[agents.a]\ninstructions_file = 'no.md'", "no.md: cannot be read: No such file"),
        (
            "[agents.a]\ninstructions = 'x'\ninstructions_file = 'y'",
            "instructions and instructions_file y exclude each other: keep one",
        ),
        ("[agents.a]\ntools = ['b']\n[agents.b]", "the agent 'b' has nothing that tells what"),
        (
            "[agents.a]\ntools = ['b']\n[agents.b]\ndescription = 'b'\nadapter = 'sql'",
            "the agent 'b' has the adapter 'sql', with which it answers clients alone",
        ),
        (
            "[agents.a]\ndescription = 'a'\ntools = ['b']\n"
            "[agents.b]\ndescription = 'b'\ntools = ['c']\n"
            "[agents.c]\ndescription = 'c'\ntools = ['a']",
            "the agents a -> b -> c -> a call each other in a circle",
        ),
        ("[agents.a]\ndescription = 'a'\ntools = ['a']", "the agents a -> a call each other"),
        (
            "[agents.a]\nagent = 'shop:a'\nlimits = {max_turns = 2}\ninstructions = 'x'",
            "[agents.a]: the agent 'shop:a' has its own instructions, limits: set them in Python",
        ),
    ],
)
def test_mistakes_name_the_agent_and_what_to_do(tmp_path: Any, text: Any, said: Any) -> None:
    with pytest.raises(SetupError) as raised:
        load(tmp_path, text)
    assert str(raised.value).startswith(str(tmp_path))
    assert said in str(raised.value)


def test_an_agent_that_is_not_there_is_told(tmp_path: Any) -> None:
    with pytest.raises(SetupError, match=r"there is no agent 'halper' in .*; there are: helper"):
        load(tmp_path, "[agents.helper]").tools_of("halper")


def test_a_file_that_came_along_reads_no_other_until_it_is_trusted(
    tmp_path: Any, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes").write_text("secret")
    (tmp_path / "caesura.toml").write_text("[agents.a]\ninstructions_file = 'notes'\n")
    with pytest.raises(SetupError, match=r"reads files .* you have not allowed it"):
        Config.load()
    (tmp_path / "caesura.toml").write_text("[agents.a]\nagent = 'shop:a'\n")
    with pytest.raises(SetupError, match=r"imports Python modules.* you have not allowed it"):
        Config.load()
    (tmp_path / "caesura.toml").write_text("[agents.a]\ninstructions = 'Help.'\n")
    assert Config.load().agents["a"].instructions == "Help."
