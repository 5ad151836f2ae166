"""What stands between two turns, found by the difference of two renderings."""

from typing import Any

import pytest
from transformers import AutoTokenizer

from caesura.runtime.launch import BUNDLED_MODEL
from caesura.scheduler.errors import UsageError
from caesura.scheduler.vllm.client.rendering.render import Continuation, Renderer
from tests.scheduler.real_templates import renderer_of

CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {
            "id": "abcdefghi",
            "type": "function",
            "function": {"name": "calculator", "arguments": '{"expression": "1+2"}'},
        }
    ],
}
RESULT = {"role": "tool", "tool_call_id": "abcdefghi", "name": "calculator", "content": "3"}
ANSWER = {"role": "assistant", "content": "It is 3."}
QUESTION = {"role": "user", "content": "And 2+2?"}

# In the manner of Llama 3.1's, Mistral's and Qwen3's templates, without their details.
LLAMA = (
    "{% for m in messages %}<|h|>{{ 'ipython' if m.role == 'tool' else m.role }}<|/h|>"
    "{% if m.tool_calls %}{{ m.tool_calls[0].function.arguments | tojson }}"
    "{% else %}{{ m.content }}{% endif %}<|eot|>{% endfor %}"
    "{% if add_generation_prompt %}<|h|>assistant<|/h|>{% endif %}"
)
MISTRAL = (
    "{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }}[/INST]"
    "{% elif m.role == 'tool' %}[TOOL_RESULTS]{{ m.content }}[/TOOL_RESULTS]"
    "{% elif m.tool_calls %}{% if m.tool_calls[0].id | length != 9 %}"
    "{{ raise_exception('ids have nine characters') }}{% endif %}"
    "[TOOL_CALLS]{{ m.tool_calls | tojson }}</s>"
    "{% else %} {{ m.content }}</s>{% endif %}{% endfor %}"
)
FORGETFUL = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{{ m.content if loop.last else '' }}<|im_end|>\n{% endfor %}"
)


@pytest.fixture
def tokenizer() -> Any:
    loaded = AutoTokenizer.from_pretrained(BUNDLED_MODEL)
    loaded.add_tokens(["<|eot|>", "<|eom|>", "</s>"], special_tokens=True)
    return loaded


def bridge(
    tokenizer: Any, template: str | None, end: str, last: str, turn: Any, *messages: Any
) -> str | None:
    if template is not None:
        tokenizer.chat_template = template
    ends = frozenset({tokenizer.convert_tokens_to_ids(text) for text in end.split()})
    renderer = Renderer(tokenizer, ends)
    tokens = renderer.bridge(
        Continuation(turn, messages, (), tokenizer.convert_tokens_to_ids(last))
    )
    return None if tokens is None else tokenizer.decode(tokens)


@pytest.mark.parametrize(
    ("template", "end", "last", "turn", "message", "expected"),
    [
        (None, "<|im_end|>", "<|im_end|>", CALL, RESULT,
         "\n<|im_start|>user\n<tool_response>\n3\n</tool_response><|im_end|>\n"
         "<|im_start|>assistant\n"),
        (None, "<|im_end|>", "<|im_end|>", ANSWER, QUESTION,
         "\n<|im_start|>user\nAnd 2+2?<|im_end|>\n<|im_start|>assistant\n"),
        # A turn cut by a token limit gets the end that it lacks.
        (None, "<|im_end|>", "a", ANSWER, QUESTION,
         "<|im_end|>\n<|im_start|>user\nAnd 2+2?<|im_end|>\n<|im_start|>assistant\n"),
        # Llama ends a turn of calls with <|eom_id|>, and its template writes <|eot_id|>.
        (LLAMA, "<|eot|> <|eom|>", "<|eom|>", CALL, RESULT,
         "<|h|>ipython<|/h|>3<|eot|><|h|>assistant<|/h|>"),
        (LLAMA, "<|eot|> <|eom|>", "<|eot|>", ANSWER, QUESTION,
         "<|h|>user<|/h|>And 2+2?<|eot|><|h|>assistant<|/h|>"),
        (MISTRAL, "</s>", "</s>", CALL, RESULT, "[TOOL_RESULTS]3[/TOOL_RESULTS]"),
        (MISTRAL, "</s>", "</s>", ANSWER, QUESTION, "[INST] And 2+2?[/INST]"),
        (FORGETFUL, "<|im_end|>", "<|im_end|>", ANSWER, QUESTION, None),
    ],
)  # fmt: skip
def test_bridges(
    tokenizer: Any,
    template: str | None,
    end: str,
    last: str,
    turn: Any,
    message: Any,
    expected: str | None,
) -> None:
    assert bridge(tokenizer, template, end, last, turn, message) == expected


def test_a_bridge_joins_seamlessly(tokenizer: Any) -> None:
    """Prompt, what the model wrote, and the bridge are together what the template renders."""
    renderer = Renderer(tokenizer, frozenset({tokenizer.eos_token_id}))
    prompt = renderer.prompt([QUESTION], ())
    wrote = renderer.encode(
        '<tool_call>\n{"name": "calculator", "arguments": {"expression": "1+2"}}\n</tool_call>'
        "<|im_end|>"
    )
    joined = renderer.bridge(Continuation(CALL, [RESULT], (), wrote[-1]))
    assert joined is not None
    whole = renderer.prompt([QUESTION, CALL, RESULT], ())
    assert tokenizer.decode([*prompt, *wrote, *joined]) == tokenizer.decode(whole)


@pytest.mark.parametrize(
    ("last", "turn", "message", "expected"),
    [
        ("<|observation|>", CALL, RESULT, "\n<tool_response>\n3\n</tool_response><|assistant|>"),
        # The engine stops at the call's last token, before the model ends its turn.
        ("a", CALL, RESULT,
         "<|observation|>\n<tool_response>\n3\n</tool_response><|assistant|>"),
    ],
)  # fmt: skip
def test_a_turn_ends_with_the_opener_of_the_next_message(
    last: str, turn: Any, message: Any, expected: str
) -> None:
    """GLM's template writes no end of a turn: its ends are `<|user|>` and `<|observation|>`."""
    tokenizer, renderer = renderer_of("glm4moe")
    tokens = renderer.bridge(
        Continuation(turn, [message], (), tokenizer.convert_tokens_to_ids(last))
    )
    assert tokens is not None
    assert tokenizer.decode(tokens) == expected


def test_results_of_several_calls_follow_where_a_history_holds_one_call_a_turn() -> None:
    """Llama 3's models may write several calls, which their templates refuse in a history."""
    tokenizer, renderer = renderer_of("llama3_1")
    calls = [{**CALL["tool_calls"][0], "id": name} for name in ("a", "b")]  # type: ignore[dict-item]
    turn = {**CALL, "tool_calls": calls}
    results = [{**RESULT, "tool_call_id": name, "content": name * 3} for name in ("a", "b")]
    written = tokenizer.decode(renderer.prompt([QUESTION, turn, *results], ()))
    assert written.count('"name": ') == 2
    assert written.index('"aaa"') < written.rindex('"name": ') < written.index('"bbb"')
    end = tokenizer.convert_tokens_to_ids("<|eot_id|>")
    joined = renderer.bridge(Continuation(turn, results, (), end))
    assert joined is not None
    header = "<|start_header_id|>ipython<|end_header_id|>\n\n"
    assert tokenizer.decode(joined) == (
        f'{header}"aaa"<|eot_id|>{header}"bbb"<|eot_id|>'
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    )


def test_results_of_kimi_name_the_call_that_the_model_wrote() -> None:
    """Its ids count the calls of a conversation; ours are random, as Mistral's must be."""
    tokenizer, renderer = renderer_of("kimi_k2")
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    for before in (0, 3):
        joined = renderer.bridge(Continuation(CALL, [RESULT], (), end, calls_before=before))
        assert joined is not None
        assert f"## Return of functions.calculator:{before}\\n3" in tokenizer.decode(joined)
    later = [{**CALL["tool_calls"][0], "id": "x"}]  # type: ignore[dict-item]
    turns = [CALL, RESULT, {**CALL, "tool_calls": later}, {**RESULT, "tool_call_id": "x"}]
    whole = tokenizer.decode(renderer.prompt([QUESTION, *turns], ()))
    assert whole.count("Return of functions.calculator:0") == 1
    assert whole.count("Return of functions.calculator:1") == 1
    assert "abcdefghi" not in whole


def test_a_template_that_refuses_is_the_users_mistake(tokenizer: Any) -> None:
    tokenizer.chat_template = MISTRAL
    renderer = Renderer(tokenizer, frozenset())
    short = {**CALL, "tool_calls": [{**CALL["tool_calls"][0], "id": "x"}]}  # type: ignore[dict-item]
    with pytest.raises(UsageError, match="nine characters"):
        renderer.prompt([QUESTION, short, RESULT], ())


def test_arguments_that_are_no_json_do_not_stop_a_conversation(tokenizer: Any) -> None:
    renderer = Renderer(tokenizer, frozenset())
    broken = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "1", "function": {"name": "calculator", "arguments": "{oops"}}],
    }
    assert renderer.prompt([QUESTION, broken, RESULT], ())


def test_the_result_of_a_call_in_the_text_is_an_observation(tokenizer: Any) -> None:
    renderer = Renderer(tokenizer, frozenset({tokenizer.eos_token_id}))
    turn = {"role": "assistant", "content": "Action: calculator\nAction Input: 1+2"}
    joined = renderer.bridge(Continuation(turn, [RESULT], (), tokenizer.eos_token_id))
    assert joined is not None
    assert "user\nObservation: 3<|im_end|>" in tokenizer.decode(joined)


@pytest.mark.parametrize(
    ("tail", "opener"),
    [
        ("<|im_start|>assistant\n<think>\n", "<think>"),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", ""),
        ("Write <think>, please.<|im_end|>\n<|im_start|>assistant\n", ""),
        ("[INST]Why?[/INST][THINK]", "[THINK]"),
    ],
)
def test_a_prompt_that_opens_thinking_says_so(tail: str, opener: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(BUNDLED_MODEL)
    renderer = Renderer(tokenizer, frozenset({tokenizer.eos_token_id}))
    assert renderer.thinking(renderer.encode("Some words before. " * 20 + tail)) == opener


def test_arguments_with_half_a_character_are_shown_as_they_were_written(tokenizer: Any) -> None:
    tokenizer.chat_template = LLAMA
    function = {"name": "calculator", "arguments": '{"expression": "\\ud800"}'}
    call = {**CALL, "tool_calls": [{**CALL["tool_calls"][0], "function": function}]}
    tokens = Renderer(tokenizer, frozenset()).prompt([QUESTION, call, RESULT], [])
    assert "malformed_arguments" in tokenizer.decode(tokens)
