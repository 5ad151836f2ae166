import pytest

from caesura.runtime.cli.game import Goal, goal_of, play
from caesura.runtime.testing.script import Calls

ROOM = (
    "You are in the middle of a room. Looking quickly around you, you see a cabinet 1, "
    "a countertop 1, and a fridge 1.\nYour task is to: {task}.\n"
    "You can: go to cabinet 1, go to countertop 1, go to fridge 1, look"
)


@pytest.mark.parametrize(
    "task, goal",
    [
        ("put a egg in fridge", Goal("egg", "fridge")),
        ("put some egg on countertop", Goal("egg", "countertop")),
        ("put a clean cup in cabinet", Goal("cup", "cabinet", "", "clean", "sinkbasin")),
        ("heat some cup and put it in cabinet", Goal("cup", "cabinet", "", "heat", "microwave")),
        ("put a cool cup in cabinet", Goal("cup", "cabinet", "", "cool", "fridge")),
        ("put two pen in drawer", Goal("pen", "drawer")),
        ("find two pen and put them in drawer", Goal("pen", "drawer")),
        ("look at cd under the desklamp", Goal("cd", "", "desklamp")),
        ("examine the cd with the desklamp", Goal("cd", "", "desklamp")),
        ("dance on the table", None),
    ],
)
def test_goals_are_read_from_the_task(task, goal):
    assert goal_of(ROOM.format(task=task)) == goal


def next_action(*observations: str) -> str:
    messages = [{"role": "user", "content": "Play."}]
    messages += [{"role": "tool", "content": each} for each in observations]
    item = play(messages, [])
    if isinstance(item, str):
        return item
    assert isinstance(item, Calls)
    ((name, arguments),) = item.calls
    assert name == "environment" and not isinstance(arguments, str)
    return str(arguments["action"])


def test_it_looks_takes_brings_and_stops():
    seen = [ROOM.format(task="put a egg in fridge")]
    assert next_action() == "reset"
    assert next_action(*seen) == "go to cabinet 1"
    seen.append("You arrive at cabinet 1. The cabinet 1 is closed.\nYou can: open cabinet 1, look")
    assert next_action(*seen) == "open cabinet 1"
    seen.append(
        "You open the cabinet 1. The cabinet 1 is open. In it, you see a cup 1, and a egg 2.\n"
        "You can: take cup 1 from cabinet 1, take egg 2 from cabinet 1, look"
    )
    assert next_action(*seen) == "take egg 2 from cabinet 1"
    seen.append("You pick up the egg 2 from the cabinet 1.\nYou can: go to fridge 1")
    assert next_action(*seen) == "go to fridge 1"
    seen.append("You arrive at fridge 1. The fridge 1 is closed.\nYou can: open fridge 1, look")
    assert next_action(*seen) == "open fridge 1"
    seen.append(
        "You open the fridge 1. The fridge 1 is open. In it, you see nothing.\n"
        "You can: move egg 2 to fridge 1, look"
    )
    assert next_action(*seen) == "move egg 2 to fridge 1"
    assert next_action(*seen, "You move the egg 2 to the fridge 1.\nDone: won") == (
        "The game is won."
    )


def test_it_gives_up_when_it_has_looked_everywhere():
    seen = [ROOM.format(task="put a pen in fridge")]
    for place in ("cabinet 1", "countertop 1", "fridge 1"):
        seen.append(f"You arrive at {place}. On the {place}, you see nothing.\nYou can: look")
    assert "give up" in next_action(*seen)


def test_an_error_ends_it():
    assert "error" in next_action("error: all 4 environments are in use by others")
