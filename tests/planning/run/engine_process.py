"""An engine's stand-in as a process: it prints a URL, answers, and starts a process of its own.

`python engine_process.py NAME KIND FOLDER`

While there is a file `hold` in the folder, as many requests as it says are answered; if it is
empty, none.
"""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from aiohttp import web

METRICS = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0"}} {running}
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{{kv_cache_memory_bytes="{kv_bytes}",kv_cache_size_tokens="512"}} 1.0
"""


def start_children() -> list["subprocess.Popen[bytes]"]:
    """Start a process, and one in a session of its own."""
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    return [subprocess.Popen(command, start_new_session=away) for away in (False, True)]


def held(folder: str, number: int) -> bool:
    """Whether the request of this number, from 1 on, is not to be answered now."""
    try:
        return number > int((Path(folder) / "hold").read_text() or 0)
    except FileNotFoundError:
        return False


async def main(name: str, kind: str, folder: str) -> None:
    if kind == "fail":
        print("the weights of the model are missing", file=sys.stderr)
        sys.exit(1)
    child, away = start_children()
    (Path(folder) / f"{name}.pids").write_text(f"{os.getpid()} {child.pid} {away.pid}")
    running = 0

    async def answer(request: web.Request) -> web.Response:
        nonlocal running
        running += 1
        try:
            text = (await request.json())["messages"][-1]["content"]
            with (Path(folder) / "asked.txt").open("a+") as asked:
                asked.write(f"{text}\n")
                asked.seek(0)
                number = len(asked.readlines())
            await asyncio.sleep(float(os.environ.get("ANSWER_SECONDS", "0.02")))
            while held(folder, number):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            choice = {"message": {"content": f"<{text}>"}, "finish_reason": "stop"}
            return web.json_response({"choices": [choice], "usage": {}})
        finally:
            running -= 1

    async def metrics(request: web.Request) -> web.Response:
        kv_bytes = os.environ.get("KV_BYTES", "100")
        return web.Response(text=METRICS.format(running=running, kv_bytes=kv_bytes))

    async def health(request: web.Request) -> web.Response:
        return web.Response()

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/health", health)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print("a line of a library", flush=True)
    print(f"http://127.0.0.1:{runner.addresses[0][1]}/v1", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
