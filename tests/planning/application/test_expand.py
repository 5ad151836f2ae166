"""An application becomes requests, whose prompts hold the outputs that they need."""

import pytest

from caesura.planning.application.application import Application, ApplicationError, Model, Task
from caesura.planning.application.file import ensemble, routing
from caesura.planning.application.requests import Requests, estimate_tokens
from caesura.planning.application.templates import PromptError

MODELS = (Model("small", "org/small"), Model("large", "org/large"))
ROWS = tuple({"question": f"question {number}"} for number in range(40))
ASK = Task("answer", "small", "{{ question }}", ROWS[:2])


def requests(*tasks: Task) -> Requests:
    return Requests(Application("test", MODELS, tasks))


def test_a_request_needs_the_outputs_of_its_row_from_every_model() -> None:
    judge = Task(
        "judge",
        "large",
        "{% for model, text in outputs.answer.items() %}{{ model }}: {{ text }}. {% endfor %}",
        needs=("answer@small", "answer@large"),
    )
    expanded = requests(judge, *ensemble(ASK, ("small", "large")))
    assert [request.key for request in expanded.all] == [
        *("answer@small/0", "answer@small/1", "answer@large/0", "answer@large/1"),
        *("judge/0", "judge/1"),
    ]
    last = expanded.all[-1]
    assert last.needs == ("answer@small/1", "answer@large/1")
    outputs = {"answer@small/1": "yes", "answer@large/1": "no"}
    assert expanded.messages(last, outputs) == [
        {"role": "user", "content": "small: yes. large: no. "}
    ]


def test_each_row_of_a_routing_goes_to_one_model_by_its_share() -> None:
    routed = routing(Task("answer", "", "{{ question }}", ROWS), {"small": 0.75, "large": 0.25})
    judge = Task(
        "judge", "large", "{{ outputs.answer }}", needs=tuple(task.name for task in routed)
    )
    expanded = requests(*routed, judge)
    answered = [request for request in expanded.all if request.task != "judge"]
    assert sorted(request.row for request in answered) == list(range(40))
    small = sum(request.model == "small" for request in answered)
    assert 24 <= small <= 36, "about 30 of 40"
    one = expanded.all[-1]
    assert len(one.needs) == 1
    assert expanded.messages(one, {one.needs[0]: "routed"})[0]["content"] == "routed"
    assert expanded.all == requests(*routed, judge).all, "the same in every process"


def test_a_task_that_needs_one_part_of_a_routing_sees_its_rows_only() -> None:
    routed = routing(Task("answer", "", "{{ question }}", ROWS), {"small": 0.75, "large": 0.25})
    check = Task("check", "large", "{{ outputs['answer@small'] }}", needs=("answer@small",))
    rows: dict[str, list[int]] = {}
    for request in requests(*routed, check).all:
        rows.setdefault(request.task, []).append(request.row)
    assert rows["check"] == rows["answer@small"] != []


def test_a_chain_sees_the_output_before_and_its_last_output_is_passed_on() -> None:
    chain = Task(
        "summary", "small", "{{ previous }}+{{ item }}", ({"parts": ["a", "b", "c"]},), loop="parts"
    )
    grade = Task("grade", "large", "{{ outputs.summary }}", needs=("summary",), samples=2)
    expanded = requests(chain, grade)
    assert [(request.key, request.needs) for request in expanded.all] == [
        ("summary/0/0/0", ()),
        ("summary/0/0/1", ("summary/0/0/0",)),
        ("summary/0/0/2", ("summary/0/0/1",)),
        ("grade/0/0", ("summary/0/0/2",)),
        ("grade/0/1", ("summary/0/0/2",)),
    ]
    second = expanded.all[1]
    assert expanded.messages(second, {"summary/0/0/0": "s"})[0]["content"] == "s+b"


def test_samples_are_passed_on_as_a_list() -> None:
    draft = Task("draft", "small", "{{ question }}", ROWS[:1], samples=3)
    vote = Task("vote", "large", "{{ outputs.draft | join(',') }}", needs=("draft",), system="Vote")
    expanded = requests(draft, vote)
    outputs = {f"draft/0/{number}": str(number) for number in range(3)}
    assert expanded.messages(expanded.all[-1], outputs) == [
        {"role": "system", "content": "Vote"},
        {"role": "user", "content": "0,1,2"},
    ]


def test_prompt_tokens_leave_out_the_outputs() -> None:
    judge = Task("judge", "large", "of {{ question }}: {{ outputs.answer }}", needs=("answer",))
    application = Application("test", MODELS, (ASK, judge))
    expanded = Requests(
        application, lambda model: str.__len__ if model.name == "small" else lambda t: t.count(" ")
    )
    assert [request.prompt_tokens for request in expanded.all] == [10, 10, 3, 3]
    assert expanded.text(expanded.all[-1]) == "of question 1: "
    assert estimate_tokens("four characters") == 4


def test_an_output_that_does_not_fit_the_template_says_why() -> None:
    judge = Task("judge", "large", "{{ (outputs.answer | fromjson).x }}", needs=("answer",))
    expanded = requests(ASK, judge)
    last = expanded.all[-1]
    assert expanded.messages(last, {"answer/1": '{"x": 5}'})[0]["content"] == "5"
    with pytest.raises(PromptError, match="the template cannot be filled in: Expecting value"):
        expanded.messages(last, {"answer/1": "no JSON"})


def test_templates_run_in_a_sandbox() -> None:
    expanded = requests(Task("t", "small", "{{ question.__class__.__mro__ }}", ROWS[:1]))
    with pytest.raises(PromptError, match="unsafe"):
        expanded.messages(expanded.all[0], {})


def test_applications_made_by_hand_are_checked_too() -> None:
    with pytest.raises(ApplicationError, match=r"\[tasks.answer\] unknown model 'smal'"):
        requests(Task("answer", "smal", "", ROWS))
    with pytest.raises(ApplicationError, match="has 2 rows, but 'answer', which it needs, has 40"):
        requests(
            Task("answer", "small", "", ROWS),
            Task("judge", "large", "", ROWS[:2], needs=("answer",)),
        )


def test_a_field_that_a_template_asks_for_may_be_missing() -> None:
    text = "{% if hint is defined %}{{ hint }}{% endif %}{{ tone | default('calm') }}"
    expanded = requests(Task("t", "small", text, ({"hint": "look"}, {"tone": "loud"})))
    said = [expanded.messages(request, {})[0]["content"] for request in expanded.all]
    assert said == ["lookcalm", "loud"]
