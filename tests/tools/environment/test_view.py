from hypothesis import given
from hypothesis import strategies as st

from caesura.tools.environment.child import (
    MAX_ACTIONS,
    MAX_ACTIONS_CHARACTERS,
    MAX_OBSERVATION_CHARACTERS,
    View,
    shown,
    you_can,
)
from caesura.tools.environment.gymnasium import worded


def test_the_last_line_says_what_can_be_done_or_how_it_ended():
    view = View(text="You are here.\n", actions=["look", "go to fridge 1"], outcome=None)
    assert shown(view) == "You are here.\nYou can: look, go to fridge 1"
    assert shown({**view, "outcome": "won"}) == "You are here.\nDone: won"
    assert shown({**view, "outcome": "lost"}) == "You are here.\nDone: lost"


def test_of_many_actions_the_first_are_told_and_the_others_counted():
    told = you_can([f"a{number}" for number in range(100)])
    assert told.startswith("You can: a0, a1, ")
    assert told.endswith(f", a{MAX_ACTIONS - 1}, and {100 - MAX_ACTIONS} more")


@given(st.lists(st.text(max_size=300)), st.text())
def test_what_is_shown_is_bounded(actions, text):
    told = you_can(actions)
    assert len(told) <= len("You can: ") + MAX_ACTIONS_CHARACTERS + len("and 1000 more")
    cut = shown(View(text=text * 100, actions=actions, outcome=None))
    assert len(cut) <= MAX_OBSERVATION_CHARACTERS + len("... (cut)\n") + len(told)
    assert cut.endswith(f"\n{told}")


def test_colours_become_words():
    assert worded("\x1b[41mS\x1b[0mFF\n") == "[red S]FF\n"
    assert worded("|\x1b[43m \x1b[0m|\x1b[34;1mB\x1b[0m|") == "|[yellow  ]|[blue B]|"
    assert worded("\x1b[35m\x1b[42mY\x1b[0m\x1b[0m:") == "[magenta green Y]:"
    assert worded("no colour\x1b[2J\x07") == "no colour"


@given(st.text() | st.from_regex(r"(\x1b\[[\d;]{0,4}m?.?)*"))
def test_no_control_characters_are_left(text):
    assert not any(ord(each) < 32 and each not in "\t\n" for each in worded(text))
