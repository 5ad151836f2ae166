"""The generated calls of the built-in tools are what those tools accept, and can be copied."""

import json
import random
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from real import SETTINGS
from tasks.builtin import charts, media, people, searches, shapes, worlds
from tasks.conversation import NEW, conversation, exchange, follow
from tasks.exchange import Exchange, contains
from tasks.toolset import BUILT_IN, KNOWN, known

from caesura.tools.artifacts import NAME, ArtifactStore
from caesura.tools.config.toolset import BUILTINS, Toolset
from caesura.tools.services import Services, SetupError


@pytest.fixture(scope="module")
def asked() -> list[Exchange]:
    """Exchanges of every new task, and what follows on them."""
    rng = random.Random("tools")
    made = [exchange(rng, task) for task in NEW for _ in range(150)]
    return made + [after for before in made if (after := follow(rng, before))]


def calls(asked: list[Exchange], name: str) -> list[tuple[Exchange, dict]]:
    found = [(e, call.arguments) for e in asked for call in e.calls if call.name == name]
    assert len(found) > 50
    return found


def test_the_tools_that_are_learned_are_the_built_in_ones():
    assert set(BUILTINS) >= BUILT_IN
    # Each deployment has its own models to ask and its own search engine, and code is for larger
    # models: their calls were not learned.
    others = {"ask_model", "web_search", "web_fetch", "python", "shell", "files"}
    assert set(BUILTINS) - BUILT_IN == others
    assert set(KNOWN) >= BUILT_IN


@pytest.mark.parametrize("name", sorted(BUILT_IN))
async def test_a_real_tool_accepts_every_call(asked, name, tmp_path: Path):
    services = Services(ArtifactStore(tmp_path), tmp_path, allow_private=True)
    async with Toolset(services, SETTINGS) as tools:
        try:
            tool = tools.make(name)
        except SetupError as error:
            pytest.skip(str(error))
        for said in asked:
            for call in said.calls:
                if call.name == name:
                    read = tool.arguments(json.dumps(call.arguments))
                    assert call.arguments.items() <= read.items()
        parameters = tool.spec()["function"]["parameters"]
    learned = known(random.Random(1), name)["function"]["parameters"]
    assert list(learned["properties"]) == list(parameters["properties"])
    assert learned["required"] == parameters.get("required", [])


def test_files_are_named_as_the_store_names_them(asked):
    named = 0
    for said in asked:
        for call in said.calls:
            for name in re.findall(r"/artifacts/(\S+):", call.result):
                assert NAME.fullmatch(name)
                assert name.endswith(".wav" if call.name == "speak" else ".png")
                named += 1
    assert named > 500


def test_every_answer_has_its_values_and_every_value_was_told(asked):
    for said in asked:
        text = "".join(piece for piece in said.answer if isinstance(piece, str))
        assert said.values
        told = " ".join(call.result for call in said.calls)
        for value in said.values:
            assert contains(text, value)
            assert value.startswith(("The game is", "It is")) or value in told, said


def test_queries_are_words_of_the_question_in_their_order(asked):
    for said, arguments in calls(asked, "search"):
        rest = said.user
        for word in arguments["query"].split():
            assert word in rest, said
            rest = rest[rest.index(word) + len(word) :]


@pytest.mark.parametrize(
    ("question", "query"),
    [
        ("When was Talmor founded?", "Talmor founded"),
        ("How high is the tower of New York?", "high tower New York"),
        ("Who is Ravi Talm?", "Ravi Talm"),
        ("Tell me about a lamp.", "lamp"),
    ],
)
def test_a_query_is_what_a_question_is_about(question, query):
    assert searches.query_of(question) == query


def test_an_answer_is_a_sentence_of_the_results(asked):
    found = 0
    for said, arguments in calls(asked, "search"):
        result = said.calls[0].result
        if result.startswith("no results"):
            assert result == f"no results for '{arguments['query']}'"
            assert arguments["query"] in said.answer[0]
        else:
            assert said.answer[0] in result
            assert re.match(r"\[1\] .+ \(.+\)\n", result)
            found += 1
    assert found > 100


def test_charts_hold_the_numbers_of_the_question(asked):
    for said, arguments in calls(asked, "render_chart"):
        spec = arguments["spec"]
        assert set(spec) == {"mark", "data"}
        assert spec["mark"] in charts.MARKS
        if said.task == "follow-up":
            continue
        seen = " ".join((said.user, *(call.result for call in said.calls)))
        names = [row["name"] for row in spec["data"]["values"]]
        assert len(set(names)) == len(names) > 1
        for row in spec["data"]["values"]:
            assert row["name"].lower() in seen.lower()
            assert contains(seen, str(row["value"])), said


def test_drawings_are_xml_with_the_colours_of_the_question(asked):
    for said, arguments in calls(asked, "render_svg"):
        assert '"' not in arguments["svg"]
        drawn = list(ElementTree.fromstring(arguments["svg"]))
        assert 1 <= len(drawn) <= 2
        for element in drawn:
            assert (element.get("fill") or element.get("stroke")) in said.user


def test_pictures_and_speech_are_told_word_for_word(asked):
    for said, arguments in calls(asked, "generate_image"):
        for value in arguments.values():
            assert str(value) in said.user
    for said, arguments in calls(asked, "speak"):
        if len(said.steps) == 1:
            assert all(value in said.user for value in arguments.values())


def test_a_person_is_asked_and_the_answer_is_used(asked):
    for said, arguments in calls(asked, "ask_user"):
        assert arguments["question"].endswith("?")
        assert all(option in arguments["question"] or option in ("yes", "no")
            for option in arguments.get("options", []))  # fmt: skip
        if "options" in arguments and len(said.steps) == 1:
            assert said.calls[0].result in arguments["options"]
    rng = random.Random(4)
    for _ in range(50):
        said = people.ask(rng)
        if said.values == ("no",):
            assert len(said.calls) == 1
            assert said.tools > {"ask_user"} or said.answer == ("You answered: no.",)


def test_actions_are_asked_for_or_stand_in_the_task(asked):
    played = 0
    for said, arguments in calls(asked, "environment"):
        action = arguments["action"]
        if action == "reset" or action in said.user.lower():
            continue
        reset = said.calls[0].result
        assert action in reset, said
        played += 1
    assert played > 20
    for said in asked:
        for step in said.steps:
            if step[0].name == "environment":
                last = step[0].result.splitlines()[-1]
                assert last.startswith("You can: ") or last in ("Done: won", "Done: lost")


def test_follow_ups_stay_with_their_tool():
    rng = random.Random(6)
    for make in (charts.chart, shapes.shape, media.image, media.speech, worlds.start):
        before = make(rng)
        after = follow(rng, before)
        assert after is not None
        assert after.calls[-1].name == before.calls[-1].name


def test_all_built_in_tools_are_now_and_then_listed_together():
    rng = random.Random(7)
    listed = [{t["function"]["name"] for t in conversation(rng).tools} for _ in range(200)]
    assert any(names >= BUILT_IN for names in listed)
    assert sum(names >= BUILT_IN - {"generate_image"} for names in listed) > 10
