"""`updating`: the weights of an engine change while sessions wait and decode, and none is lost."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal, get_args

from caesura.runtime.engine import Engine
from caesura.runtime.errors import UsageError

KV = Literal["recompute", "keep"]
"""What becomes of the KV cache that earlier weights have computed."""


@asynccontextmanager
async def updating(engine: Engine, version: str, *, kv: KV = "recompute") -> AsyncIterator[Any]:
    """Freeze an engine while the context lasts, in which the caller changes its weights.

    async with updating(engine, "12") as llm:
        await llm.collective_rpc("reload_weights", kwargs={"weights_path": folder})

    It yields vLLM's client, `AsyncLLM`, whose methods and workers update the weights in their ways.
    What decodes stops behind a token, and goes on behind the context with the new weights.
    Sessions whose tools run wait for them meanwhile, as ever. `version` is the label of the weights
    from then on, which trajectories tell of each token.

    With `recompute`, all KV is dropped, also copies on the host, and computed again by the new
    weights. With `keep`, the requests under way keep theirs. Later requests find none of it.

    If the caller raises, the engine stays frozen, since its weights may be mixed, until another
    update succeeds. Raises `UsageError` for an engine that is not vLLM's in this process, outside
    its event loop, and within another update; `EngineFailed` if the engine dies.
    """
    if kv not in get_args(KV):
        raise UsageError(f"kv must be one of {', '.join(get_args(KV))}, got {kv!r}")
    if not isinstance(version, str) or not version:
        raise UsageError(f"version must be a text that names the weights, got {version!r}")
    loop = getattr(engine, "loop", None)
    if loop is not None and loop is not asyncio.get_running_loop():
        raise UsageError(
            f"the weights cannot become {version!r} on this event loop, which is not that of their"
            " engine: use asyncio.run_coroutine_threadsafe(..., engine.loop)"
        )
    async with engine.backend.updating(version, keeps_kv=kv == "keep") as llm:
        yield llm


async def update_weights(
    engine: Engine, folder: Path | str, version: str, *, kv: KV = "recompute"
) -> None:
    """Give an engine the weights of a checkpoint in a folder; see `updating`.

    Raises as `updating` does, and `UsageError` for what is no folder.
    """
    if not await asyncio.to_thread(Path(folder).is_dir):
        raise UsageError(f"the weights come from the folder of a checkpoint, got {folder!r}")
    async with updating(engine, version, kv=kv) as llm:
        await llm.collective_rpc("reload_weights", kwargs={"weights_path": str(folder)})
