"""Configurations of servers whose models ask others: `caesura.toml` with the tool `ask_model`."""

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from caesura.planning.application.application import Application, ApplicationError, Model

TOOL = "ask_model"
"""The built-in tool that asks another model."""

_HEADER = re.compile(rf"^\s*\[\s*tools\s*\.\s*{TOOL}\s*\].*$", re.MULTILINE)


def asked_models(application: Application) -> dict[str, str]:
    """Return by model which other model it asks.

    Raises `ApplicationError` for a model that asks several, which the tool cannot tell apart.
    """
    asked: dict[str, str] = {}
    for task in application.tasks:
        for name in task.asks:
            if asked.setdefault(task.model, name) != name:
                raise ApplicationError(
                    f"[tasks.{task.name}] the model {task.model!r} asks {asked[task.model]!r} and"
                    f" {name!r}, but a server has one tool that asks: give one of the two models a"
                    " second entry in [models] for this task"
                )
    return asked


def with_configs(
    application: Application,
    folder: Path,
    url_of: Callable[[str], str],
    expected_seconds: Mapping[str, float] | None = None,
) -> Application:
    """Return the application with a configuration for each model that asks another.

    The files are written into `folder`. `url_of` gives a model's address. `expected_seconds` are
    those of an answer, by asked model: the tool forecasts its pauses by them. What a model's own
    `config` says is kept, other settings of the tool too. Raises `ApplicationError` if it cannot
    be.
    """
    asked = asked_models(application)
    folder.mkdir(parents=True, exist_ok=True)
    return replace(
        application,
        models=tuple(
            _configured(model, asked[model.name], folder, url_of, expected_seconds or {})
            if model.name in asked
            else model
            for model in application.models
        ),
    )


def _configured(
    model: Model,
    asked: str,
    folder: Path,
    url_of: Callable[[str], str],
    expected_seconds: Mapping[str, float],
) -> Model:
    own = Path(model.config).read_text("utf-8") if model.config else ""
    values = tomllib.loads(own)
    tools = values.get("tools", {})
    given = {"url", "model"} & set(tools.get(TOOL, {}))
    if given or TOOL not in tools.get("enabled", [TOOL]):
        raise ApplicationError(
            f"[models.{model.name}] config {model.config}: leave url and model of [tools.{TOOL}]"
            f" to the run, and name {TOOL!r} in [tools] enabled if it has such a list"
        )
    # The address is one of this machine.
    private = "" if "allow_private" in values else "allow_private = true\n"
    path = folder / f"{model.name}.toml"
    added = f"url = {json.dumps(url_of(asked))}\nmodel = {json.dumps(asked)}\n"
    if asked in expected_seconds and "expected_seconds" not in tools.get(TOOL, {}):
        added += f"expected_seconds = {float(expected_seconds[asked])!r}\n"
    path.write_text(private + _with_settings(own, added), "utf-8")
    return replace(model, config=str(path))


def _with_settings(own: str, added: str) -> str:
    """Return the text of a configuration with more settings in the table of the tool."""
    if _HEADER.search(own):
        return _HEADER.sub(lambda found: f"{found[0]}\n{added}", own, count=1)
    return f"{own}\n[tools.{TOOL}]\n{added}"
