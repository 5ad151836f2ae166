"""The models of an agent as its arguments name them, and their engines."""

import os
from collections.abc import Sequence
from typing import cast

from caesura.runtime.engine import Engine
from caesura.runtime.errors import UsageError
from caesura.runtime.sdk.across import on_any_loop
from caesura.runtime.sdk.engines import ENGINES

OneModel = str | os.PathLike[str] | Engine | None
Model = OneModel | Sequence[OneModel]
"""A model, or a list of one and those that stand in for it."""


def models_of(
    engine: object, model: object, api_key: str | None, *, tells_tokens: bool = False
) -> tuple[str | Engine | None, ...]:
    """Return the model of an agent, and those that stand in for it. Raises `UsageError`.

    With `tells_tokens` a server, which does not, is refused.
    """
    models = _models_of(engine, model, api_key)
    if tells_tokens:
        _check_tokens(models)
    return models


def _models_of(
    engine: object, model: object, api_key: str | None
) -> tuple[str | Engine | None, ...]:
    given = engine if isinstance(engine, list | tuple) else model
    if not isinstance(given, list | tuple):
        return (_model_of(engine, model, api_key),)
    if api_key is not None or not given or (engine is not None and model is not None):
        raise UsageError(
            f"several models are one list, got {engine!r} and model={model!r}: give the list alone,"
            " with servers as RemoteEngine(url, model, api_key=...)"
        )
    return tuple(_model_of(each, None, None) for each in given)


def _model_of(engine: object, model: object, api_key: str | None) -> str | Engine | None:
    """Return the model or the engine that an agent is given. Raises `UsageError`."""
    if isinstance(engine, str) and "://" in engine:
        from caesura.runtime.remote.engine import RemoteEngine

        if not isinstance(model, str | None):
            raise UsageError(f"the model of a server is named by a text, got {model!r}")
        return RemoteEngine(engine, model, api_key=api_key)
    if api_key is not None:
        raise UsageError(
            f"an api_key is for a server, and {engine or model!r} is none: give its address as the"
            " first argument"
        )
    if engine is not None and model is not None:
        raise UsageError(
            f"{engine!r} and model={model!r} are two models: give one of them, or the address of a"
            " server first"
        )
    model = engine if model is None else model
    if isinstance(model, os.PathLike):
        model = os.fspath(model)
    if isinstance(model, str) and "://" in model:
        raise UsageError(f"{model!r} is the address of a server: write Agent({model!r})")
    if model is None or isinstance(model, str):
        return model
    if isinstance(model, type):
        raise UsageError(f"the model is an Engine, got its class: write {model.__name__}(...)")
    if not hasattr(model, "open"):
        raise UsageError(
            f"the model must be a Hugging Face id, a directory, an Engine or None, got {model!r}"
        )
    return cast(Engine, model)


def _check_tokens(models: Sequence[str | Engine | None]) -> None:
    """Raise `UsageError` for a model of a server, which keeps its tokens to itself."""
    from caesura.runtime.remote.engine import RemoteEngine

    for each in models:
        if isinstance(each, RemoteEngine):
            raise UsageError(
                f"{each!r} is a server, which keeps its tokens to itself: leave trajectories=True"
                " out, or give the Agent a model that runs here"
            )


async def ready(model: str | Engine | None, holder: object) -> Engine:
    """Return a model's engine, started, for any event loop; `holder` holds one that is shared.

    Raises `EngineFailed` for one that does not start, or cannot be reached.
    """
    if model is None or isinstance(model, str):
        return await ENGINES.hold(model, holder)
    from caesura.runtime.remote.engine import RemoteEngine  # few agents need HTTP

    if isinstance(model, RemoteEngine):
        await model.contact()
    return on_any_loop(model)
