"""Applications are read from TOML and YAML, and mistakes are told with their line."""

import json
from pathlib import Path

import pytest

from caesura.planning.application.application import Application, ApplicationError
from caesura.planning.application.file import read_application

HEAD = """\
# An application.
[application]
name = "test"

[models.small]
path = "org/small"

[models.large]
path = "org/large"
tensor_parallel = [2, 1]
machines = { 1 = "a100", 2 = "two" }

"""
"""Twelve lines."""

ROWS = [{"question": "Why?"}, {"question": "How?"}]


def written(folder: Path, text: str, name: str = "app.toml") -> Path:
    (folder / "rows.jsonl").write_text("\n".join(json.dumps(row) for row in ROWS))
    path = folder / name
    path.write_text(text)
    return path


def read(folder: Path, tasks: str) -> Application:
    return read_application(written(folder, HEAD + tasks))


def test_an_ensemble_makes_a_task_per_model_and_needs_name_all_of_them(tmp_path: Path) -> None:
    application = read(
        tmp_path,
        """
        [tasks.judge]
        model = "large"
        needs = ["answer"]
        template = "{{ question }} {{ outputs.answer.small }}"
        [tasks.answer]
        models = ["small", "large"]
        prompts = "rows.jsonl"
        template = "{{ question }}"
        max_tokens = 7
        """,
    )
    assert [task.name for task in application.tasks] == ["answer@small", "answer@large", "judge"]
    assert application.tasks[2].needs == ("answer@small", "answer@large")
    assert application.tasks[2].rows == tuple(ROWS), "rows of what it needs"
    assert application.tasks[0].max_tokens == 7
    assert application.model("large").tensor_parallel == (1, 2)
    assert application.model("large").machines == {1: "a100", 2: "two"}


def test_a_routing_gives_each_model_its_part(tmp_path: Path) -> None:
    tasks = read(
        tmp_path,
        """
        [tasks.answer]
        route = { small = 0.75, large = 0.25 }
        prompts = "rows.jsonl"
        template = "{{ question }}"
        """,
    ).tasks
    assert [(task.model, task.route_from, task.route_to) for task in tasks] == [
        ("small", 0.0, 0.75),
        ("large", 0.75, 1.0),
    ]


def test_a_text_file_is_a_prompt_per_line(tmp_path: Path) -> None:
    (tmp_path / "prompts.txt").write_text("one\n\ntwo\n")
    (task,) = read(tmp_path, "[tasks.t]\nmodel = 'small'\nprompts = 'prompts.txt'").tasks
    assert task.rows == ({"prompt": "one"}, {"prompt": "two"})
    assert task.template == "{{ prompt }}"


def test_yaml_says_the_same_as_toml(tmp_path: Path) -> None:
    yaml = """\
application: {name: test}
models:
  small: {path: org/small}
  large: {path: org/large, tensor_parallel: [1, 2], machines: {1: a100, 2: two}}
tasks:
  t:
    model: small
    prompts: rows.jsonl
    template: "{{ question }}"
"""
    toml = "[tasks.t]\nmodel = 'small'\nprompts = 'rows.jsonl'\ntemplate = '{{ question }}'"
    assert read_application(written(tmp_path, yaml, "app.yaml")) == read(tmp_path, toml)


TASK = "[tasks.t]\nmodel = 'small'\nprompts = 'rows.jsonl'\ntemplate = '{{ question }}'\n"
MISTAKES = [
    ("[task.t]", "line 13: [task] unknown table 'task'; did you mean 'tasks'?"),
    (TASK + "modell = 'x'", "line 17: [tasks.t] unknown key 'modell'; did you mean 'model'?"),
    (TASK + "samples = 0", "line 17: [tasks.t] samples: input should be greater than or equal to"),
    (TASK.replace("small", "smal"), "line 14: [tasks.t] unknown model 'smal'; did you mean 'small"),
    (TASK + "asks = ['smal']", "line 17: [tasks.t] unknown model 'smal'; did you mean 'small'"),
    (TASK + "needs = ['u']", "line 17: [tasks.t] unknown task 'u'"),
    (TASK + "needs = ['t']", "line 17: [tasks.t] tasks need each other in a circle: t needs t"),
    (TASK.replace("rows.j", "row.j"), "line 15: [tasks.t] "),
    (TASK.replace("rows.j", "row.j"), "row.jsonl: cannot be read: No such file"),
    (
        TASK.replace("question", "answer"),
        "line 16: [tasks.t] the template uses 'answer', which row",
    ),
    (TASK.replace("}}", "}"), "line 16: [tasks.t] line 1 of the template is not valid Jinja"),
    (TASK + "loop = 'question'", "line 17: [tasks.t] row 1 has no list of items in its field"),
    (TASK.replace("question", "outputs.u"), "line 16: [tasks.t] outputs.u: unknown task 'u'"),
    (TASK.replace("prompts = 'rows.jsonl'\n", ""), "line 13: [tasks.t] has no rows: name a file"),
    (TASK.replace("model = 'small'\n", ""), "line 13: [tasks.t] give one of 'model', 'models'"),
    (
        TASK.replace("model = 'small'", "route = { small = 0.5, large = 0.4 }"),
        "line 14: [tasks.t] the shares must add up to 1, got 0.9",
    ),
    (
        "[tasks.a]\nmodel = 'small'\nneeds = ['b']\n[tasks.b]\nmodel = 'small'\nneeds = ['a']",
        "tasks need each other in a circle: a needs b needs a; remove one of the needs",
    ),
    ("[tasks.t]\nmodel = 'x", "not valid TOML"),
]


@pytest.mark.parametrize(("tasks", "message"), MISTAKES)
def test_mistakes_name_the_line_and_the_fix(tmp_path: Path, tasks: str, message: str) -> None:
    with pytest.raises(ApplicationError) as raised:
        read(tmp_path, tasks)
    assert message in str(raised.value)
    assert str(tmp_path / "app.toml") in str(raised.value)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("", "rows.jsonl: holds no rows"),
        ('{"question": "a"}\n\n{"question"', "rows.jsonl, line 3: not valid JSON"),
        ("[1]", "rows.jsonl, line 1: a row must be an object with fields, got [1]"),
    ],
)
def test_rows_that_cannot_be_read_are_named(tmp_path: Path, rows: str, message: str) -> None:
    path = written(tmp_path, HEAD + TASK)
    (tmp_path / "rows.jsonl").write_text(rows)
    with pytest.raises(ApplicationError) as raised:
        read_application(path)
    assert message in str(raised.value)


def test_lines_of_yaml_and_its_double_keys(tmp_path: Path) -> None:
    head = "application: {name: test}\nmodels:\n  small: {path: org/small}\n"
    with pytest.raises(ApplicationError, match=r"line 6: \[tasks.t\] unknown key 'modul'"):
        read_application(written(tmp_path, head + "tasks:\n  t:\n    modul: small", "a.yml"))
    with pytest.raises(ApplicationError, match="line 4: the key 'models' is given twice, first in"):
        read_application(written(tmp_path, head + "models: {}", "a.yml"))
    with pytest.raises(ApplicationError, match="line 4: not valid YAML"):
        read_application(written(tmp_path, head + "tasks: [", "a.yml"))


def test_keys_within_long_texts_have_no_line(tmp_path: Path) -> None:
    text = "[tasks.t]\nmodel = 'small'\nprompts = 'rows.jsonl'\ntemplate = '''\nloop = 1\n'''\n"
    with pytest.raises(ApplicationError, match="line 19"):
        read(tmp_path, text + "loop = 'items'")


def test_a_directory_beside_the_file_is_a_model(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    path = written(tmp_path, (HEAD + TASK).replace("org/small", "own"))
    assert read_application(path).model("small").path == str(tmp_path / "own")
    path = written(tmp_path, (HEAD + TASK).replace("org/small", "./other"))
    with pytest.raises(ApplicationError, match=r"line 6: \[models.small\] there is no directory"):
        read_application(path)


def test_files_of_lengths_and_machines_are_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "steps.json").write_text("{}")
    specs = "lengths = 'records:steps.json'\nmachines = {1 = 'steps.json', 2 = 'a100'}\n"
    path = written(tmp_path, (HEAD + TASK).replace("[models.large]", specs + "[models.large]"))
    small = read_application(path).model("small")
    assert small.lengths == f"records:{tmp_path / 'steps.json'}"
    assert small.machines == {1: str(tmp_path / "steps.json"), 2: "a100"}
