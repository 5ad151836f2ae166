"""What a prompt asks the model to write."""

from tests.clients.script import ASSISTANT, call, either, say, wanted


def user(text: str) -> str:
    return f"<|im_start|>user\n{text}<|im_end|>\n"


def test_without_marks_the_model_is_free() -> None:
    assert not wanted(user("Hello.") + ASSISTANT)


def test_the_answers_are_counted() -> None:
    prompt = user(say("One.", "Two.")) + ASSISTANT
    assert wanted(prompt) == ["One."]
    prompt += "One.<|im_end|>\n" + user("\n<tool_response>\n4\n</tool_response>") + ASSISTANT
    assert wanted(prompt) == ["Two."]
    assert not wanted(prompt + "Two.<|im_end|>\n" + user("And?") + ASSISTANT)


def test_the_last_marks_hold() -> None:
    prompt = user(say("One.")) + ASSISTANT + "One.<|im_end|>\n" + user(say("New.")) + ASSISTANT
    assert wanted(prompt) == ["New."]


def test_a_turn_goes_on_behind_its_begin() -> None:
    prompt = user(say("It is 816.")) + ASSISTANT
    assert wanted(prompt + "It is") == [" 816."]
    assert not wanted(prompt + "No,")


def test_marks_in_an_answer_say_nothing() -> None:
    assert not wanted(user("Hello.") + ASSISTANT + say("One.") + "<|im_end|>\n" + ASSISTANT)


def test_a_call_may_end_in_brackets() -> None:
    text = call("f", matrix=[[1, 2], [3]], nested=[[0]])
    assert wanted(user(say(text)) + ASSISTANT) == [text]


def test_a_turn_may_have_alternatives() -> None:
    prompt = user(say(either("One.", "On it."), "Two.")) + ASSISTANT
    assert wanted(prompt) == ["One.", "On it."]
    assert wanted(prompt + "On i") == ["t."]


def test_a_known_prompt_is_answered_once() -> None:
    prompt = user("Reply briefly with CANARY_OK.") + ASSISTANT
    assert wanted(prompt) == ["CANARY_OK"]
    assert not wanted(prompt + "CANARY_OK<|im_end|>\n" + user("And?") + ASSISTANT)
