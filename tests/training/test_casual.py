"""Questions typed in haste keep what a call has to repeat."""

import json
import random

from tasks.casual import casual, lowered, typed
from tasks.conversation import conversation
from tasks.exchange import Call, Exchange


def test_a_word_that_a_call_repeats_or_that_is_quoted_stays():
    speak = Call("speak", {"text": "draw the game"}, "")
    said = Exchange("speech", "Say 'draw the game', please.", ("",), ((speak,),))
    assert {typed(random.Random(seed), said).user for seed in range(9)} == {
        "Say 'draw the game', pls.", "Say 'draw the game', plz.", "Say 'draw the game', pleas.",
    }  # fmt: skip


def test_a_city_is_lowered_only_where_it_is_looked_up():
    look = Exchange("one", "Time in New York?", ("",), ((Call("clock", {"timezone": "x"}, ""),),))
    assert lowered(look).user == "Time in new york?"
    speak = Exchange("speech", "Say 'Oslo'.", ("",), ((Call("speak", {"text": "Oslo"}, ""),),))
    assert lowered(speak) == speak


def test_only_the_question_changes():
    rng = random.Random(2)
    changed = 0
    for _ in range(100):
        talk = conversation(rng)
        after = casual(rng, talk)
        assert (after.system, after.tools) == (talk.system, talk.tools)
        for old, new in zip(talk.exchanges, after.exchanges, strict=True):
            changed += old.user != new.user
            assert (old.steps, old.answer) == (new.steps, new.answer)
            for call in new.calls:
                text = json.dumps(call.arguments)
                assert (text in new.user) == (text in old.user)
    assert changed > 5
