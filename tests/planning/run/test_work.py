"""A model that is asked is needed as long as a model that asks it has requests left."""

from caesura.planning.application.requests import Request, asked_by, with_asked
from caesura.planning.run.dispatch import Work
from caesura.planning.run.journal import Result

REQUESTS = (
    Request("solve/0", "solve", "agent", 10, 10, asks=("expert",)),
    Request("read/0", "read", "reader", 10, 10),
)


def test_the_asked_model_is_unfinished_until_its_asker_is_done() -> None:
    work = Work(REQUESTS, {})
    assert work.unfinished == ("agent", "reader", "expert")
    work.finish(Result("solve/0", "solve", "agent", "done"))
    assert work.unfinished == ("reader",)


def test_models_that_are_asked_may_ask_others() -> None:
    chain = (*REQUESTS, Request("look/0", "look", "expert", 1, 1, asks=("agent", "clerk")))
    assert with_asked(["agent"], asked_by(chain)) == {"agent", "expert", "clerk"}
    assert with_asked(["reader"], asked_by(chain)) == {"reader"}
