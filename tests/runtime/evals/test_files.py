"""Cases in files."""

from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from caesura import ScriptedEngine, UsageError
from caesura.evals import Calls, Contains, Equals, Judge, Matches, Valid, Within, cases

YAML = """
checks:
  - contains: euros
cases:
  - name: lamps
    prompt: How much do 7 lamps cost?
    expected: 168
    checks:
      - expected
      - contains: {texts: [lamp, "168"], any: true}
      - calls: {calls: [price, {calculator: {expression: 7*24}}], ordered: true}
      - within: {seconds: 5, cost: 0.1, prices: {prompt: 1, completion: 2}}
      - judge: It is polite.
      - function: manners:polite
    metadata: {topic: prices}
  - prompt: Hello
    checks:
      - no_calls
      - absent: [sorry, cannot]
      - matches: "^Hello"
      - schema: {type: string}
      - calls: price
"""


def test_yaml_has_all_kinds_of_checks(tmp_path: Path) -> None:
    (tmp_path / "manners.py").write_text("def polite(answer):\n    return 'please' in answer\n")
    (tmp_path / "cases.yaml").write_text(YAML)
    lamps, hello = cases(tmp_path / "cases.yaml", judge=Judge("", ScriptedEngine([])))
    assert (lamps.name, lamps.expected, lamps.metadata) == ("lamps", 168, {"topic": "prices"})
    kinds: list[Any] = [type(check) for check in lamps.checks]
    assert [each for each in kinds if each is not FunctionType] == [
        Equals,
        Contains,
        Calls,
        Within,
        Judge,
        Contains,
    ]
    assert [str(check) for check in lamps.checks[:3]] == [
        "equals",
        "contains any of 'lamp', '168'",
        'calls price, calculator({"expression": "7*24"}) in order',
    ]
    assert getattr(lamps.checks[5], "__name__", "") == "polite"
    assert hello.name == "Hello"
    kinds = [type(check) for check in hello.checks]
    assert kinds == [
        Calls,
        Contains,
        Matches,
        Valid,
        Calls,
        Contains,
    ]


def test_json_lines_have_a_case_each(tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text('{"prompt": "One", "expected": "1"}\n\n{"prompt": "Two", "name": "2"}\n')
    assert [(case.name, case.expected) for case in cases(path)] == [("One", "1"), ("2", None)]
    (tmp_path / "cases.json").write_text('[{"prompt": "One"}]')
    assert [case.prompt for case in cases(tmp_path / "cases.json")] == ["One"]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.jsonl", '{"prompt": "One"}\n{', "a.jsonl, line 2: is not valid JSON"),
        ("a.json", "{", "a.json: is not valid JSON"),
        ("a.txt", "prompt: One", "; name it .yaml, .json or .jsonl"),
        ("a.yaml", "a: [", "a.yaml: is not valid YAML"),
        ("a.yaml", "case: []", "unknown key 'case'; did you mean 'cases'?"),
        ("a.yaml", "cases: 3", "cases must be a list, got 3"),
        ("a.yaml", "[]", "there is nothing to evaluate"),
        ("a.yaml", "[3]", "case 1 must have a prompt, got 3"),
        ("a.yaml", "[{prompt: a, expect: b}]", "case 1: unknown key 'expect'; did you mean"),
        ("a.yaml", "[{name: a}]", "case 1: prompt must be a text, got None"),
        ("a.yaml", "[{prompt: a}, {prompt: a}]", "two cases have the name 'a'"),
        ("a.yaml", "[{prompt: a, checks: [contain: b]}]", "checks: unknown key 'contain'; did"),
        ("a.yaml", "[{prompt: a, checks: [matches: '(']}]", "matches: '(' is no regular"),
        ("a.yaml", "[{prompt: a, checks: [within: {second: 1}]}]", "within: "),
        ("a.yaml", "[{prompt: a, checks: [judge: kind]}]", "the rubric 'kind' needs a model: "),
        ("a.yaml", "[{prompt: a, checks: [function: 'no_such:f']}]", "there is no module"),
        ("a.yaml", "[{prompt: a, metadata: 3}]", "metadata must be an object, got 3"),
    ],
)
def test_mistakes_name_the_file_and_the_case(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError) as raised:
        cases(tmp_path / name)
    assert str(raised.value).startswith(str(tmp_path / name))
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_that_is_missing_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no\.yaml: cannot be read: No such file"):
        cases(tmp_path / "no.yaml")
