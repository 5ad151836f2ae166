"""The table of formats, and the bytes of a vocabulary."""

import re
from pathlib import Path

import pytest

from caesura.intercept.calls.detection import detect
from caesura.intercept.calls.formats import NAMES, TURN_FORMATS, check_together, resolve
from caesura.intercept.calls.vocabulary import vocabulary_of
from caesura.runtime.launch import BUNDLED_MODEL


@pytest.mark.parametrize(
    ("template", "formats"),
    [
        ("... <tool_call>\n{...}</tool_call> ...", ("hermes",)),
        ("{{ '[TOOL_CALLS]' }}", ("mistral",)),
        (
            '{"name": function name, "parameters": dictionary of argument name and its value}',
            ("llama3_json",),
        ),
        ("<tool_call>\n<function={{ name }}>\n<parameter=", ("qwen3_coder",)),
        ("<tool_call>{{ name }}\n<arg_key>{{ key }}</arg_key>", ("glm",)),
        ("<seed:tool_call>\n<function={{ name }}>\n<parameter=", ("seed_oss",)),
        ("<minimax:tool_call>\n<invoke name=", ("minimax_m2",)),
        ('<longcat_tool_call>\n{"name":', ("longcat",)),
        ("<|action_start|><|plugin|>", ("internlm",)),
        ("<｜DSML｜function_calls>\n<｜DSML｜invoke name=", ("deepseek_v32",)),
        ("<｜DSML｜tool_calls>\n<｜DSML｜invoke name=", ("deepseek_v4",)),
        ("<｜DSML｜ calls>\n<｜DSML｜ invoke name=", ("deepseek_v41",)),
        ("{{ '[' }} [func_name1(params_name1=params_value1)]", ("pythonic",)),
        ("{{ '<|python_start|>' }}", ("pythonic",)),
        ("<｜tool▁call▁begin｜>function<｜tool▁sep｜>{{ name }}\n```json", ("deepseek_v3",)),
        ("<｜tool▁call▁begin｜>{{ name }}<｜tool▁sep｜>", ("deepseek_v31",)),
        ("<|tool_calls_section_begin|><|tool_call_begin|>", ("kimi_k2",)),
        ("<|start|>assistant<|channel|>commentary<|message|><|call|>", ("harmony",)),
        ("Thought: ...\nAction: ...\nAction Input: ...", ("react",)),
        ("<tool_call> or [tool(arguments) -> result]", ("hermes", "inline")),
        ("{{ messages }}", ()),
    ],
)
def test_formats_are_read_off_the_template(template: str, formats: tuple[str, ...]) -> None:
    assert detect(template) == formats


JSON_ASKED_FOR = (
    """{{- 'Respond in the format {"name": function name, "parameters": dictionary of """
    "argument name and its value}.' }}"
)

# The lines of published templates that tell how calls are written.
PUBLISHED = {
    "Qwen 2.5 and 3, Hermes 3": (
        r"within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, "
        r"\"arguments\": <args-json-object>}\n</tool_call>",
        ("hermes",),
    ),
    "Qwen3-Coder": (
        r"{{- '\n\nIf you choose to call a function ONLY reply in the following format with NO "
        r"suffix:\n\n<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>"
        r"\nvalue_1\n</parameter>\n",
        ("qwen3_coder",),
    ),
    "GLM 4.5": (
        "<tool_call>{function-name}\n<arg_key>{arg-key-1}</arg_key>\n"
        "<arg_value>{arg-value-1}</arg_value>\n...\n</tool_call>",
        ("glm",),
    ),
    "Llama 3.1": (
        """{{- "<|python_tag|>" + tool_call.name + ".call(" }}""" + JSON_ASKED_FOR,
        ("llama3_json",),
    ),
    "Llama 3.2, Llama 4 with JSON": (
        JSON_ASKED_FOR,
        ("llama3_json",),
    ),
    "Llama 4 with JSON, and a tag for code": (
        JSON_ASKED_FOR + "{{- '<|python_start|>' }}",
        ("llama3_json",),
    ),
    "Llama 4 with Python": (
        "- Use exact format: [func_name1(param1=value1, param2=value2), func_name2(...)]",
        ("pythonic",),
    ),
    "Llama 3.2 with Python": (
        "[func_name1(params_name1=params_value1, params_name2=params_value2...), "
        "func_name2(params)]",
        ("pythonic",),
    ),
    "Mistral": ("""{{- "[TOOL_CALLS][" }}""", ("mistral",)),
    "DeepSeek V3, R1": (
        "{{'<｜Assistant｜><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + tool['type'] + "
        r"'<｜tool▁sep｜>' + tool['function']['name'] + '\n' + '```json' + '\n' + "
        "tool['function']['arguments']",
        ("deepseek_v3",),
    ),
    "DeepSeek V3.1": (
        "{{'<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>'+ tool['function']['name'] + "
        "'<｜tool▁sep｜>' + tool['function']['arguments'] + '<｜tool▁call▁end｜>'}}",
        ("deepseek_v31",),
    ),
    "Kimi K2": (
        "{{ '<|tool_calls_section_begin|>' }}<|tool_call_begin|>{{ formatted_id }}"
        "<|tool_call_argument_begin|>",
        ("kimi_k2",),
    ),
    "Seed-OSS": (
        "<seed:tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>value_1",
        ("seed_oss",),
    ),
    "MiniMax M2": (
        '<minimax:tool_call>\n<invoke name="tool-name-1">\n<parameter name="param-key-1">',
        ("minimax_m2",),
    ),
    "Hunyuan": (
        """<tool_calls>[{"name": "func_name1", "arguments": {""",
        ("hunyuan_a13b",),
    ),
    "Apriel 1.5": (
        "return them in <tool_calls>[...]</tool_calls>; <tool_call> is one of them",
        ("hunyuan_a13b",),
    ),
    # Formats without a row, some of which look like one that has a row.
    "Granite 3.1": (
        "respond with <tool_call> followed by a JSON list of tools used.",
        ("vllm:granite",),
    ),
    "Granite 3.2": (
        "respond with <|tool_call|> followed by a JSON list of tools used.",
        ("vllm:granite",),
    ),
    "Gemma 4": ("{{- '<|tool_call>call:' -}}{{- '<tool_call|>' -}}", ("vllm:gemma4",)),
    "Functionary 3.1": (
        "<function=example_function_name>{{parameters}}</function>{{ '<|python_tag|>' }}",
        (),
    ),
    "Command R": ("```python\ndef directly_answer() -> List[Dict]:\n", ()),
}


@pytest.mark.parametrize(("template", "formats"), PUBLISHED.values(), ids=list(PUBLISHED))
def test_published_templates_are_known(template: str, formats: tuple[str, ...]) -> None:
    assert detect(template) == formats
    assert detect({"default": "{{ messages }}", "tool_use": template}) == formats


def test_the_bundled_models_template_is_known() -> None:
    template = (Path(BUNDLED_MODEL) / "chat_template.jinja").read_text()
    assert detect(template) == ("hermes", "inline")
    assert detect(None) == ()


@pytest.mark.parametrize(
    "names", [["hermes", "inline"], ["react"], ["mistral", "react"], [], ["glm"]]
)
def test_formats_that_can_be_read_together(names: list[str]) -> None:
    check_together(names)
    check_together(names * 2)


@pytest.mark.parametrize(
    "names", [["hermes", "glm"], ["react", "inline"], ["glm", "inline", "kimi_k2"]]
)
def test_formats_that_cannot_be_read_together_are_refused(names: list[str]) -> None:
    with pytest.raises(ValueError, match="name one of them"):
        check_together(names)


@pytest.mark.parametrize("name", NAMES)
def test_every_row_has_all_that_it_needs(name: str) -> None:
    form, *_ = resolve([name], ["search"])
    assert form.opens or form.anchors
    assert form.closes is not None or form.body == "json" or form.anchors
    assert form.pause == "turn" or form.closes is not None
    assert re.compile(form.named).groups >= 1
    own = name in ("qwen3_coder", "glm")
    assert (form.parser is not None or own) == (name in TURN_FORMATS) == bool(form.shape)


def test_the_inline_format_needs_tools() -> None:
    assert resolve(["inline"], []) == ()
    assert resolve(["inline"], ["a", "b"])[0].opens == ("[a(", "[b(")
    with pytest.raises(ValueError, match=r"choose from: hermes, qwen3_coder, glm, .*, inline"):
        resolve(["xml"], [])


def test_byte_level_vocabulary() -> None:
    tokens = ["Ġhello", "Ċ", "Ã©", "<|im_end|>", None]
    vocabulary = vocabulary_of(tokens, {3: "<|im_end|>"}, byte_level=True)
    pieces = [vocabulary.bytes_of(index) for index in range(6)]
    assert pieces == [b" hello", b"\n", "é".encode(), b"<|im_end|>", b"", b""]


def test_metaspace_vocabulary() -> None:
    vocabulary = vocabulary_of(["▁hello", "<0x0A>", "é"], {}, byte_level=False)
    assert [vocabulary.bytes_of(i) for i in range(3)] == [b" hello", b"\n", "é".encode()]
