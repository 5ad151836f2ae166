"""Configurations of servers whose models ask others: `caesura.toml` with the tool `ask_model`."""

import json
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from caesura.planning.application.application import Application, ApplicationError, Model

TOOL = "ask_model"
"""The built-in tool that asks another model."""


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
    application: Application, folder: Path, url_of: Callable[[str], str]
) -> Application:
    """Return the application with a configuration for each model that asks another.

    The files are written into `folder`. `url_of` gives a model's address. A model's own `config` is
    kept in it. Raises `ApplicationError` if it cannot be.
    """
    asked = asked_models(application)
    folder.mkdir(parents=True, exist_ok=True)
    return replace(
        application,
        models=tuple(
            _configured(model, asked[model.name], folder, url_of) if model.name in asked else model
            for model in application.models
        ),
    )


def _configured(model: Model, asked: str, folder: Path, url_of: Callable[[str], str]) -> Model:
    own = Path(model.config).read_text("utf-8") if model.config else ""
    values = tomllib.loads(own)
    tools = values.get("tools", {})
    if TOOL in tools or TOOL not in tools.get("enabled", [TOOL]):
        raise ApplicationError(
            f"[models.{model.name}] config {model.config}: leave [tools.{TOOL}] to the run, and"
            f" name {TOOL!r} in [tools] enabled if it has such a list"
        )
    # The address is one of this machine.
    private = "" if "allow_private" in values else "allow_private = true\n"
    settings = {"url": url_of(asked), "model": asked}
    table = "".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items())
    path = folder / f"{model.name}.toml"
    path.write_text(f"{private}{own}\n[tools.{TOOL}]\n{table}", "utf-8")
    return replace(model, config=str(path))
