"""`caesura serve`."""

from collections.abc import Sequence

from caesura.runtime.cli.engine import engine_on
from caesura.runtime.server import serve
from caesura.tools import Registry, builtin


async def serve_model(
    model: str | None,
    served_name: str | None,
    formats: Sequence[str] | None,
    vllm_args: Sequence[str],
    *,
    host: str,
    port: int,
    api_key: str | None,
    max_concurrent: int,
) -> None:
    """Serve until interrupted; requests in flight are given time to finish."""
    async with engine_on(model, formats, vllm_args, served_name) as engine:
        await serve(
            engine,
            Registry(builtin().values()),
            host,
            port,
            api_key=api_key,
            max_concurrent=max_concurrent,
        )
