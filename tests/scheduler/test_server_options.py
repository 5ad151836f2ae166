"""Options of `vllm serve`: each is classified, and those for all routes act on our sessions."""

import argparse
import ast
import re
from pathlib import Path
from typing import Any

import pytest
from vllm.tokenizers.hf import maybe_make_thread_pool

from caesura.scheduler.errors import UsageError
from caesura.scheduler.messages import Sampling, SessionSpec
from caesura.scheduler.serve_options import REFUSED, Acts, acts, check_flags, field_of
from caesura.scheduler.vllm.client.options import parse_serve_options, serve_parser
from tests.scheduler.unstarted import TOOLS, bundled, engine_with

HELLO = [{"role": "user", "content": "Hello"}]
ZEBRA = (
    "{% for m in messages %}{{ m.content }} zebra{% endfor %}{{ mood }}<think>{{ '<tool_call>' }}"
)
PARTS = (
    "{% for m in messages %}{% for part in m.content %}[{{ part.text }}]{% endfor %}{% endfor %}"
)


def pooled() -> Any:
    """The bundled tokenizer as vLLM's renderer has it, which renders with copies of itself."""
    return maybe_make_thread_pool(bundled("{{ messages[0].content }}"), 2)


async def prompt_of(engine: Any, **spec: Any) -> str:
    session = engine.open(SessionSpec(**spec))
    rendered = engine.rendering.renderer.prompt(HELLO, session._spec.tools, session._spec.template)
    assert await engine.count_prompt(SessionSpec(**spec), HELLO) == len(rendered)
    return str(engine.tokenizer.decode(rendered))


def options() -> list[Any]:
    return [each for each in serve_parser()._actions if each.dest != "help"]


def test_every_option_of_vllms_parser_is_classified() -> None:
    """A new release of vLLM may have others: each needs a line in the table, and a look at it."""
    assert [each.dest for each in options() if acts(each.dest) is None] == []


def test_every_flag_of_vllms_parser_is_known() -> None:
    flags = {flag: each.dest for each in options() for flag in each.option_strings}
    assert {flag: field_of(flag) for flag in flags} == flags


def test_no_option_is_classified_twice() -> None:
    source = Path("scheduler/serve_options.py").read_text()
    lists = [
        node.args[0].value.split()
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        if node.func.id == "_names" and isinstance(node.args[0], ast.Constant)
    ]
    names = [*REFUSED, *(name for names in lists for name in names)]
    assert len(names) == len(set(names)) > 300


def given(action: Any) -> list[str]:
    """Return arguments that set an option to another value than its default."""
    if not action.option_strings:
        return ["x"]
    switches = action.nargs == 0 or isinstance(action, argparse.BooleanOptionalAction)
    flags = [each for each in action.option_strings if each.startswith("--")]
    if switches:  # the second flag, if there is one, switches it off
        return [flags[-1] if action.default is True else flags[0]]
    flag = flags[0]
    if action.choices is not None:
        return [flag, *[str(each) for each in action.choices if each != action.default][:1]]
    for value in ("x", "9", "x.yaml", '["x"]', '{"image": "x"}'):
        try:
            if vars(serve_parser().parse_args([flag, value]))[action.dest] != action.default:
                return [flag, value]
        except (argparse.ArgumentError, ValueError, TypeError):
            continue
        except FileNotFoundError:  # --config is read at once
            return [flag, value]
    raise AssertionError(f"no value for {flag} was found")


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_acts_on_half_of_the_port_is_refused_by_name(name: str) -> None:
    found = [each for each in options() if each.dest == name]
    if not found:
        pytest.skip("another release of vLLM has it")
    (action,) = found
    arguments = given(action)
    with pytest.raises(UsageError) as refused:
        parse_serve_options(arguments)
    said = f"--{name.replace('_', '-')} has no effect behind `--`: {REFUSED[name]}"
    assert str(refused.value) == said
    if arguments[0].startswith("--") and not arguments[0].startswith("--no-"):
        with pytest.raises(UsageError, match=re.escape(said)):
            check_flags(["--dtype", "auto", *arguments])


def test_values_after_an_option_are_not_options() -> None:
    check_flags(["--chat-template", "port", "--max-model-len=9", "uds"])
    assert acts("chat_template") is Acts.EVERYWHERE
    assert acts("no_such_option") is None


def test_options_without_a_default_are_read() -> None:
    assert parse_serve_options(["--log-level", "DEBUG"]).engine["log_level"] == "DEBUG"


async def test_the_chat_template_of_the_options_writes_the_prompt() -> None:
    own = engine_with(pooled())
    assert (own.language.formats, await prompt_of(own)) == ((), "Hello")
    engine = engine_with(pooled(), server_options={"chat_template": ZEBRA})
    assert await prompt_of(engine) == "Hello zebra<think><tool_call>"
    # What the template shows is read off the same text.
    assert engine.language.formats == ("hermes",)
    assert engine.language.thinking == ("<think>",)
    assert engine.grammars._may_think == ["<think>"]


async def test_variables_of_the_options_hold_unless_the_request_sets_them() -> None:
    given = {"chat_template": ZEBRA, "default_chat_template_kwargs": {"mood": "!", "other": 1}}
    engine = engine_with(pooled(), server_options=given)
    assert "zebra!<" in await prompt_of(engine)
    assert "zebra?<" in await prompt_of(engine, template={"mood": "?"})
    assert engine.completed(SessionSpec(template={"mood": None})).template["mood"] == "!"
    cohere = engine_with(pooled(), server_options={"cohere_format": "cmd3"})
    assert cohere.completed(SessionSpec()).template == {"cohere_format": "cmd3"}


@pytest.mark.parametrize(
    ("template", "given", "written"),
    [
        (PARTS, "auto", "[Hello]"),
        (PARTS, "string", "[][][][][]"),
        ("{{ messages[0].content }}", "auto", "Hello"),
        ("{{ messages[0].content[0].text }}", "openai", "Hello"),
    ],
)
async def test_texts_come_as_the_content_format_says(
    template: str, given: str, written: str
) -> None:
    options = {"chat_template": template, "chat_template_content_format": given}
    assert await prompt_of(engine_with(pooled(), server_options=options)) == written


async def test_tools_are_hidden_where_none_may_be_called_if_the_options_say_so() -> None:
    template = "{{ tools | length if tools else 0 }}{{ '<tool_call>' }}"
    for hides, shown in ((False, "1"), (True, "0")):
        given = {"chat_template": template, "exclude_tools_when_tool_choice_none": hides}
        engine = engine_with(pooled(), server_options=given)
        assert (await prompt_of(engine, tools=TOOLS))[0] == "1"
        assert (await prompt_of(engine, tools=TOOLS, tool_choice="none"))[0] == shown


def test_a_template_that_cannot_be_read_is_told() -> None:
    with pytest.raises(UsageError, match="the chat template cannot be used"):
        engine_with(pooled(), server_options={"chat_template": "/no/such/file"})


@pytest.mark.parametrize(
    ("config", "asked", "held"),
    [
        ({}, None, None),
        ({}, 40, 40),
        ({"override_generation_config": {"max_new_tokens": 8}}, None, 8),
        ({"override_generation_config": {"max_new_tokens": 8}}, 40, 8),
        ({"override_generation_config": {"max_new_tokens": 8}}, 4, 4),
        ({"try_get_generation_config": lambda: {"max_new_tokens": 8}}, None, 8),
        ({"try_get_generation_config": lambda: {"max_new_tokens": 8}}, 40, 40),
        (
            {
                "generation_config": "/a/directory",
                "try_get_generation_config": lambda: {"max_new_tokens": 8},
            },
            40,
            8,
        ),
    ],
)
def test_the_operators_bound_is_a_ceiling_and_the_models_own_a_default(
    config: dict[str, Any], asked: int | None, held: int | None
) -> None:
    engine = engine_with(pooled(), **config)
    assert engine.sampling.bounded(Sampling(max_tokens=asked)).max_tokens == held
