"""What a model is made to write: each template's form, counted by what its prompt holds."""

from typing import Any

import pytest

from tests.agents.templates import TEMPLATES, Template, Turn, as_json, wanted
from tests.formats.rendering import Call
from tests.scheduler.real_templates import renderer_of

NAMES = [each.name for each in TEMPLATES]
FUNCTION = {"name": "bash", "description": "Run.", "parameters": {"type": "object"}}
TOOLS: list[dict[str, Any]] = [{"type": "function", "function": FUNCTION}]
TURNS = (Turn("I look.", "", (Call("bash", {"command": "ls"}),)), Turn("I saw.", "Two files."))


def prompt_of(template: Template, messages: list[dict[str, Any]]) -> str:
    tokenizer, _ = renderer_of(template.file)
    rendered = tokenizer.apply_chat_template(
        messages, tools=TOOLS, add_generation_prompt=True, tokenize=False
    )
    return str(rendered)


@pytest.mark.parametrize("template", TEMPLATES, ids=NAMES)
def test_each_turn_is_the_next_one_of_the_script(template: Template) -> None:
    scripts = {"(task 1)": {"tool": "bash", "turns": template.script("bash", TURNS).turns}}
    given = as_json(template)
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Look. (task 1)"}]
    [first] = wanted(prompt_of(template, messages), given, scripts)
    assert "I look." in first and "bash" in first and "ls" in first
    call = {
        "id": "abcdefghi",
        "type": "function",
        "function": {"name": "bash", "arguments": {"command": "ls"}},
    }
    messages += [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "abcdefghi", "content": "a b"},
    ]
    [second] = wanted(prompt_of(template, messages), given, scripts)
    assert "I saw." in second and second.endswith("Two files.")


def test_a_request_without_the_tool_gets_no_call() -> None:
    template = TEMPLATES[0]
    scripts = {"(task 1)": {"tool": "bash", "turns": template.script("bash", TURNS).turns}}
    prompt = "<|im_start|>user\nA title for: Look. (task 1)<|im_end|>\n<|im_start|>assistant\n"
    assert wanted(prompt, as_json(template), scripts) == ["A calculator"]
    assert wanted(prompt.replace("1", "2"), as_json(template), scripts) == []


def test_a_thought_that_the_template_has_closed_is_not_written() -> None:
    template = TEMPLATES[1]
    scripts = {"(task 1)": {"tool": "", "turns": template.script("", TURNS[1:]).turns}}
    prompt = "<|im_start|>user\n(task 1)<|im_end|>\n<|im_start|>assistant\n<think>\n"
    assert wanted(prompt, as_json(template), scripts) == ["I saw.\n</think>\n\nTwo files."]
    closed = prompt + "\n</think>\n\n"
    assert wanted(closed, as_json(template), scripts) == ["Two files."]
