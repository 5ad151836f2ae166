"""The servers under test, each on the bundled model with the echo processor."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import httpx

from caesura.runtime.launch import BUNDLED_MODEL

ROOT = Path(__file__).parent.parent.parent
MODEL = "tiny"
ORIGIN = "https://app.example.com"
WINDOW = 8192
"""Tokens of the context window: the system prompts of agent frameworks are long."""
START_SECONDS = 600
STOP_SECONDS = 60

_CONNECTOR = {
    "kv_connector": "CaesuraConnector",
    "kv_connector_module_path": "caesura.scheduler.vllm",
    "kv_role": "kv_both",
    "kv_connector_extra_config": {"host_gib": 0.5},
}
_ENGINE = (
    *("--max-model-len", str(WINDOW)),
    *("--hf-overrides", json.dumps({"max_position_embeddings": WINDOW})),
    *("--logits-processors", "tests.clients.echo:Echo"),
    "--enable-prompt-tokens-details",
)
_VLLM = (
    *("-m", "vllm.entrypoints.openai.api_server", "--model", BUNDLED_MODEL),
    *("--served-model-name", MODEL, "--host", "127.0.0.1", *_ENGINE),
    *("--dtype", "float32", "--enforce-eager", "--block-size", "32"),
    *("--kv-cache-memory-bytes", str(256 << 20)),
    *("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
    *("--allowed-origins", json.dumps([ORIGIN])),
    *("--scheduler-cls", "caesura.scheduler.vllm.CaesuraAsyncScheduler"),
    *("--kv-transfer-config", json.dumps(_CONNECTOR)),
)
COMMANDS = {
    "caesura serve": (
        *("-m", "caesura", "serve", "--served-model-name", MODEL, "--no-calibrate", "--no-trace"),
        *("--no-responses", "--allowed-origin", ORIGIN, "--port", "{port}", "--", *_ENGINE),
    ),
    "vllm serve with the plugin": (*_VLLM, "--port", "{port}"),
    "vllm serve": (*_VLLM, "--port", "{port}"),
}
"""A server's name -> the arguments of Python that start it."""
ENVIRONMENT = {"vllm serve with the plugin": {"VLLM_PLUGINS": "caesura"}}


def serving(name: str, folder: Path) -> AbstractContextManager[str]:
    """Start a server of `COMMANDS`, as `started` does."""
    return started(name, COMMANDS[name], folder, ENVIRONMENT.get(name, {}))


@contextmanager
def started(
    name: str,
    arguments: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    python: str = sys.executable,
) -> Iterator[str]:
    """Start a server by these arguments of Python, `{port}` filled in, and yield its address.

    Raises `RuntimeError` if the server does not start, or ends before the block does.
    """
    port = _free_port()
    command = [python, *(part.replace("{port}", str(port)) for part in arguments)]
    log = folder / f"{name.replace(' ', '-')}.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=_environment(folder) | environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        url = f"http://127.0.0.1:{port}"
        _await_health(url, process, log)
        yield url
        if process.poll() is not None:
            raise RuntimeError(f"{name} ended during the checks:\n{log.read_text()[-3000:]}")
    finally:
        _stop(process)


def _environment(folder: Path) -> dict[str, str]:
    config = folder / "caesura.toml"
    config.write_text(f'[data]\ndirectory = "{folder}"\n')
    return {
        **os.environ,
        # The engine finds the echo processor, and traces stay in the folder.
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "OMP_NUM_THREADS": "1",
        "CAESURA_CONFIG": str(config),
        "CAESURA_TRACE": str(folder / "traces.sqlite"),
        "XDG_STATE_HOME": str(folder),
        "VLLM_PLUGINS": "",
    }


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def _await_health(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    ends = time.monotonic() + START_SECONDS
    while time.monotonic() < ends and process.poll() is None:
        try:
            # vLLM's own server has no /ready, and no /health before it takes work.
            answer = httpx.get(f"{url}/ready", timeout=5)
            if answer.status_code == 404:
                answer = httpx.get(f"{url}/health", timeout=5)
            if answer.status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.5)
    raise RuntimeError(f"the server at {url} did not start:\n{log.read_text()[-3000:]}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
