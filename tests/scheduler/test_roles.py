"""Each text of a conversation arrives in its place, with the templates of real models."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer
from vllm.tokenizers.mistral import MistralTokenizer

from caesura.runtime.launch import BUNDLED_MODEL
from caesura.scheduler.messages import Message, ToolSpec
from caesura.scheduler.vllm.client.rendering.mistral import MistralRenderer
from caesura.scheduler.vllm.client.rendering.render import Continuation, Renderer
from tests.scheduler.real_templates import ENDS, renderer_of
from tests.scheduler.tekken import write_tekken

TOOLS: list[ToolSpec] = [
    {
        "type": "function",
        "function": {
            "name": "look",
            "description": "Look.",
            "parameters": {"type": "object", "properties": {}},
        },
    }
]
CALL = {"id": "abcdefghi", "type": "function", "function": {"name": "look", "arguments": "{}"}}
SECOND = {**CALL, "id": "abcdefghj"}
CONVERSATIONS = {
    "Codex's first request": "ddu",
    "Codex's first request, with its surroundings": "dduu",
    "instructions and three developer messages": "ssssu",
    "a changed setting behind an answer": "dduaddu",
    "a changed setting as the last message": "duad",
    "Claude Code's first request": "sus",
    "a reminder between two questions": "susu",
    "a reminder behind each result": "suscrscrsasu",
    "a reminder as the last message, behind a result": "sucrs",
    "a question behind a result": "ducru",
    "no system message at the begin": "usaus",
    "two questions": "uuau",
    "two answers in a row": "uaau",
    "an answer without text": "ueuau",
    "two calls of one turn": "uCrRau",
    "results of two calls in the other order": "uCRr",
}
"""Conversations, one letter a message: system, developer, user, assistant, call, result.

Capitals are two calls of one turn and the second's result, and `e` is an answer without text.
"""
WITHOUT_TEXT = "cCe"
FORGET_TEXT_BESIDE_CALLS = ("mistral_nemo", "mistral_small_3_2")
"""Templates that write no text beside a call, and no two answers in a row either."""
ROLES = {"s": "system", "d": "developer", "u": "user", "a": "assistant"}


def conversation(letters: str) -> list[Message]:
    made: list[Message] = []
    for number, letter in enumerate(letters):
        if letter in "cCt":
            calls = [CALL, SECOND] if letter == "C" else [CALL]
            beside = text(number) if letter == "t" else ""
            made.append({"role": "assistant", "content": beside, "tool_calls": calls})
        elif letter in "rR":
            call = CALL if letter == "r" else SECOND
            result = {"role": "tool", "tool_call_id": call["id"], "name": "look"}
            made.append({**result, "content": text(number)})
        elif letter == "e":
            made.append({"role": "assistant", "content": ""})
        else:
            made.append({"role": ROLES[letter], "content": text(number)})
    return made


def text(number: int) -> str:
    return f"Zebra rule {number:02d} holds."


def assert_in_order(written: str, letters: str) -> None:
    """Each text stands there once, behind the one before it; the first may stand elsewhere."""
    numbers = [number for number, letter in enumerate(letters) if letter not in WITHOUT_TEXT]
    if "CRr" in letters and written.index(text(2)) > written.index(text(3)):
        numbers[1:3] = [3, 2]  # where a turn has one call, results stand in the order of the calls
    assert [written.count(text(number)) for number in numbers] == [1] * len(numbers)
    begin = next(at for at, letter in enumerate(letters) if letter not in "sd")
    leading = [number for number in numbers if number < begin]
    for part in (leading, numbers[len(leading) :]):
        places = [written.index(text(number)) for number in part]
        assert places == sorted(places)


def written(template: str, letters: str, tools: Sequence[ToolSpec] = ()) -> str:
    tokenizer, renderer = renderer_of(template)
    return str(tokenizer.decode(renderer.prompt(conversation(letters), tools)))


# The template of the distilled models writes no results of tools.
@pytest.mark.parametrize("template", [name for name in ENDS if name != "deepseek_r1_distill"])
@pytest.mark.parametrize("letters", CONVERSATIONS.values(), ids=CONVERSATIONS)
def test_every_text_arrives_in_its_place(template: str, letters: str) -> None:
    tools = TOOLS if set("cC") & set(letters) else ()
    assert_in_order(written(template, letters, tools), letters)


@pytest.mark.parametrize("template", ENDS)
def test_a_text_beside_a_call_arrives(template: str) -> None:
    if template in FORGET_TEXT_BESIDE_CALLS:
        _, renderer = renderer_of(template)
        assert renderer.roles.told[-1] == "a text beside a call is lost"
    elif template != "deepseek_r1_distill":
        whole = written(template, "utr", TOOLS)
        assert_in_order(whole, "utr")
        assert "look" in whole


@pytest.mark.parametrize("template", [name for name in ENDS if name != "deepseek_r1_distill"])
@pytest.mark.parametrize("content", ["parts", "null", "missing"])
def test_contents_of_every_form_arrive(template: str, content: str) -> None:
    """Parts of text as they are for no template, and calls beside which nothing stands."""
    told = conversation("suaucr")
    call, result = told[-2:]
    if content == "missing":
        del call["content"]  # type: ignore[attr-defined]
    else:
        call["content"] = [] if content == "parts" else None  # type: ignore[index]
    for message in (*told[:4], result) if content == "parts" else ():
        half = len(message["content"]) // 2
        parts = (message["content"][:half], message["content"][half:])
        made = [{"type": "text", "text": part} for part in parts]
        message["content"] = made  # type: ignore[index]
    tokenizer, renderer = renderer_of(template)
    whole = str(tokenizer.decode(renderer.prompt(told, TOOLS)))
    assert "'type'" not in whole and '"type": "text"' not in whole
    plain = str(tokenizer.decode(renderer.prompt(conversation("suaucr"), TOOLS)))
    assert whole.replace("\n", "").replace("\\n", "") == plain.replace("\n", "").replace("\\n", "")


PICTURES = {
    "gemma4": ("user", "tool"),
    "qwen3_5_think": ("user", "tool"),
    "llama4_json": ("user", "tool"),
    "llama4_pythonic": ("user",),
    "mistral_small_3_2": ("user",),
    "ministral_3_reasoning": ("user",),
    "kimi_k2": ("user",),
}


@pytest.mark.parametrize("template", ENDS)
def test_where_pictures_are_written(template: str) -> None:
    _, renderer = renderer_of(template)
    assert renderer.pictures_in == PICTURES.get(template, ())


NO_RESULTS = [each for each in CONVERSATIONS.values() if not set("cC") & set(each)]


@pytest.mark.parametrize("letters", NO_RESULTS)
def test_every_text_arrives_where_a_template_writes_no_results(letters: str) -> None:
    assert_in_order(written("deepseek_r1_distill", letters), letters)


# Mistral Nemo's template forgets the system message in some conversations.
@pytest.mark.parametrize("template", [name for name in ENDS if name != "mistral_nemo"])
def test_a_plain_conversation_is_what_the_template_writes(template: str) -> None:
    tokenizer, renderer = renderer_of(template)
    plain = conversation("suau")
    stock = tokenizer.apply_chat_template(plain, add_generation_prompt=True, tokenize=False)
    assert tokenizer.decode(renderer.prompt(plain, ())) == stock


@pytest.mark.parametrize("template", ENDS)
def test_a_later_reminder_leaves_what_is_before_it(template: str) -> None:
    first, second = written(template, "suau"), written(template, "suasu")
    end = first.index(text(2)) + len(text(2))
    assert second[:end] == first[:end]


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("qwen3", "<|im_start|>system\nD<|im_end|>\n"),
        ("qwen3_5_think", "<|im_start|>user\nD<|im_end|>\n"),
        ("minimax_m2", "]~b]user\nD[e~[\n"),
        ("gptoss", "<|start|>user<|message|>D<|end|>"),
        ("mistral_small_3_2", "[INST]C\n\nD[/INST]"),
    ],
)
def test_a_later_message_is_the_systems_where_the_template_takes_it(
    template: str, expected: str
) -> None:
    tokenizer, renderer = renderer_of(template)
    told = [
        {"role": "system", "content": "A"},
        {"role": "system", "content": "B"},
        {"role": "user", "content": "C"},
        {"role": "system", "content": "D"},
    ]
    whole = tokenizer.decode(renderer.prompt(told, ()))
    assert expected in whole
    assert ("A\n\nB" in whole) == (template != "qwen3")


def test_where_no_system_message_is_taken_the_first_question_begins_with_it() -> None:
    tokenizer = AutoTokenizer.from_pretrained(BUNDLED_MODEL)
    # In the manner of Gemma 2's template.
    tokenizer.chat_template = (
        "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
        "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('roles must alternate') }}{% endif %}"
        "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    )
    renderer = Renderer(tokenizer, frozenset({tokenizer.eos_token_id}))
    letters = "ssuasu"
    whole = tokenizer.decode(renderer.prompt(conversation(letters), ()))
    assert_in_order(whole, letters)
    assert whole.startswith(f"<|im_start|>user\n{text(0)}\n\n{text(1)}\n\n{text(2)}<|im_end|>")


def test_a_picture_is_kept_where_two_questions_become_one() -> None:
    _, renderer = renderer_of("mistral_small_3_2")
    picture = {"type": "image_url", "image_url": {"url": "data:,"}}
    told = [{"role": "user", "content": [picture]}, {"role": "system", "content": "A"}]
    (made,) = renderer.for_template(told)
    assert made["content"] == [picture, {"type": "text", "text": "A"}]


@pytest.mark.parametrize("version", [3, 7, 11, 13])
@pytest.mark.parametrize("letters", CONVERSATIONS.values(), ids=CONVERSATIONS)
def test_every_text_arrives_by_mistrals_own_tokenizers(
    tmp_path: Path, version: int, letters: str
) -> None:
    tokenizer: Any = MistralTokenizer.from_pretrained(str(write_tekken(tmp_path, version)))
    renderer = MistralRenderer(tokenizer, frozenset({tokenizer.eos_token_id}))
    tools = TOOLS if set("cC") & set(letters) else ()
    assert_in_order(str(tokenizer.decode(renderer.prompt(conversation(letters), tools))), letters)


def test_what_a_template_does_not_take_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    _, renderer = renderer_of("qwen3_5_think")
    with caplog.at_level(logging.INFO, logger="caesura"):
        for _ in range(2):
            renderer.prompt(conversation("ddu"), ())
    assert caplog.text.count("does not take all messages") == 1
    assert "several system messages become one; a later system" in caplog.text


LATE_AS_THE_USERS = (
    *("deepseekv3", "deepseek_r1_distill", "deepseekv3_tools", "deepseek_r1_tools"),
    *("deepseek_v31", "gptoss", "minimax_m2", "gemma4", "kimi_k2"),
    *("mistral_nemo", "mistral_small_3_2", "ministral_3_reasoning"),
)
"""Templates that take no result behind later messages, or go on within the call's turn there."""
MOVE_TOOLS = ("mistral_nemo", "mistral_small_3_2")
"""Templates that write the tools before the last question, and so move them."""


def with_a_late_result() -> list[Message]:
    told = conversation("ucra")
    late = {"role": "tool", "tool_call_id": CALL["id"], "name": "look", "late": True}
    return [*told, {**late, "content": text(4)}]


@pytest.mark.parametrize("template", ENDS)
def test_who_tells_a_late_result(template: str) -> None:
    _, renderer = renderer_of(template)
    assert renderer.roles.late is (template not in LATE_AS_THE_USERS)
    *_, result = renderer.for_template(with_a_late_result())
    assert result["role"] == ("user" if template in LATE_AS_THE_USERS else "tool")
    assert "late" not in result


@pytest.mark.parametrize("template", [each for each in ENDS if each not in MOVE_TOOLS])
def test_a_late_result_is_appended_as_the_whole_history_has_it(template: str) -> None:
    tokenizer, renderer = renderer_of(template)
    messages = with_a_late_result()
    whole = str(tokenizer.decode(renderer.prompt(messages, TOOLS)))
    end = tokenizer.convert_tokens_to_ids(ENDS[template][0])
    after = Continuation(messages[3], messages[4:], TOOLS, end)
    bridged = renderer.bridge(after)
    if bridged is None:
        spliced = renderer.splice(after)
        assert spliced is not None
        bridged = spliced.tokens
    assert text(4) in whole
    assert whole.endswith(str(tokenizer.decode(bridged)))


def test_a_late_result_of_a_call_that_stands_alone_stays_behind_later_messages() -> None:
    """Where a turn has one call, results stand directly behind their calls, but no late one."""
    _, renderer = renderer_of("llama3_1")
    assert not renderer.roles.several_calls
    late = {"role": "tool", "tool_call_id": CALL["id"], "name": "look", "late": True}
    told = [*conversation("uCrRa"), {**late, "content": text(7)}]
    contents = [each["content"] for each in renderer.for_template(told) if each["content"]]
    assert contents == [text(0), text(2), text(3), text(4), text(7)]
