"""vLLM's own server with our scheduler and connector, in a process of its own."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from caesura.runtime.launch import BUNDLED_MODEL

BLOCKS = 70


@asynccontextmanager
async def vllm_server(
    records: Path, retention: float, *options: str, **environment: str
) -> AsyncIterator[str]:
    """Start the server and yield its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    connector = {
        "kv_connector": "CaesuraConnector",
        "kv_connector_module_path": "caesura.scheduler.vllm",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"host_gib": 0.05, "records": str(records)},
    }
    settings = {"caesura": {"retention": retention}}
    command = [
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", BUNDLED_MODEL),
        *("--served-model-name", "tiny", "--port", str(port), "--host", "127.0.0.1"),
        *("--dtype", "float32", "--enforce-eager", "--max-model-len", "2048"),
        *("--block-size", "32", "--num-gpu-blocks-override", str(BLOCKS)),
        *("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
        "--enable-prompt-tokens-details",
        *("--scheduler-cls", "caesura.scheduler.vllm.CaesuraScheduler"),
        *("--kv-transfer-config", json.dumps(connector)),
        *("--additional-config", json.dumps(settings)),
        *options,
    ]
    server, log = start(command, records.with_suffix(".log"), environment)
    try:
        await healthy(f"http://127.0.0.1:{port}/health", server, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, signal.SIGINT)
        try:
            await asyncio.to_thread(server.wait, 30)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)


def start(
    command: list[str], log: Path, more: dict[str, str]
) -> tuple[subprocess.Popen[bytes], Path]:
    environment = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1", **more}
    with log.open("w") as output:
        server = subprocess.Popen(
            command, env=environment, stdout=output, stderr=output, start_new_session=True
        )
    return server, log


def said(log: Path) -> str:
    return log.read_text()[-3000:]


async def healthy(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    async with aiohttp.ClientSession() as http:
        for _ in range(480):
            assert server.poll() is None, said(log)
            try:
                async with http.get(url) as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.5)
    raise AssertionError(said(log))
