"""Two servers over one store: the first is killed in mid-answer, the second goes on with it.

    python examples/12_two_servers.py
    CAESURA_STORE=postgresql://USER@HOST/DATABASE python examples/12_two_servers.py

Both servers are processes of this machine with an engine and the bundled model. They keep responses
and the journals of runs in the same SQLite files, or in PostgreSQL. A client asks the first one in
the background, reads some of the stream, and sees it break off. It goes on at the second server,
behind the last event that it has. The whole must be what a server that nobody kills answers.
"""

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

STORE = "CAESURA_STORE"
ENGINE = ("--kv-cache-memory-bytes", "134217728")
NUMBERS = {"type": "array", "items": {"type": "integer"}, "minItems": 60, "maxItems": 60}
SCHEMA = {
    "type": "object",
    "properties": {"numbers": NUMBERS},
    "required": ["numbers"],
    "additionalProperties": False,
}
REQUEST = {
    "model": "caesura-tiny",
    "input": "Write many numbers.",
    "temperature": 0,
    "text": {"format": {"type": "json_schema", "name": "numbers", "schema": SCHEMA}},
}
KILL_AFTER = 60
"""The number of the event behind which the first server is killed."""
Event = dict[str, Any]


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """Run `caesura serve` on a free port; yield its process and its URL."""
    command = [str(Path(sys.executable).with_name("caesura")), "serve", "--port", "0"]
    if STORE not in os.environ:
        command += ["--responses", str(folder / "responses.sqlite")]
        command += ["--journal", str(folder / "journal.sqlite")]
    process = await asyncio.create_subprocess_exec(
        *command,
        *("--no-calibrate", "--no-trace", "--", *ENGINE),
        stdout=asyncio.subprocess.PIPE,
        stderr=(folder / f"server-{os.urandom(2).hex()}.log").open("wb"),
    )
    try:
        assert process.stdout is not None
        url = (await process.stdout.readline()).decode().strip()
        assert url, f"the server did not start; its log is in {folder}"
        yield process, url.removesuffix("/v1")
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def events(answer: aiohttp.ClientResponse) -> AsyncIterator[Event]:
    """Yield the events of a stream until it ends, or breaks off."""
    assert answer.status == 200, await answer.text()
    try:
        async for line in answer.content:
            if line.startswith(b"data: {"):
                yield json.loads(line.removeprefix(b"data: "))
    except aiohttp.ClientError:
        return


async def undisturbed(http: aiohttp.ClientSession, url: str) -> str:
    """Return the text of the answer of a server that nobody kills."""
    async with http.post(f"{url}/v1/responses", json={**REQUEST, "stream": True}) as answer:
        return text_of([event async for event in events(answer)])


async def rest(http: aiohttp.ClientSession, url: str, name: str, after: int) -> list[Event]:
    """Return the events behind a number from a server, as soon as it has taken the run over."""
    where = {"stream": "true", "starting_after": str(after)}
    while True:
        async with http.get(f"{url}/v1/responses/{name}", params=where) as answer:
            if answer.status == 200:
                return [event async for event in events(answer)]
            await answer.read()
        await asyncio.sleep(0.2)


def text_of(told: list[Event]) -> str:
    """Return the text that a client has read."""
    return "".join(e["delta"] for e in told if e["type"] == "response.output_text.delta")


async def main() -> None:
    """Ask, kill, go on, compare."""
    with tempfile.TemporaryDirectory(prefix="caesura-") as name:
        folder = Path(name)
        async with aiohttp.ClientSession() as http, AsyncExitStack() as stack:
            servers = (stack.enter_async_context(serving(folder)) for _ in range(2))
            (first, first_url), (_, second_url) = await asyncio.gather(*servers)
            print(f"two servers: {first_url} {second_url}", flush=True)
            whole = await undisturbed(http, second_url)
            body = {**REQUEST, "stream": True, "background": True}
            told: list[Event] = []
            async with http.post(f"{first_url}/v1/responses", json=body) as answer:
                async for event in events(answer):
                    told.append(event)
                    if event["sequence_number"] == KILL_AFTER:
                        first.kill()
            response = told[0]["response"]["id"]
            assert told[-1]["type"] != "response.completed", "the server was killed too late"
            print(f"the first server was killed; its client has {len(told)} events", flush=True)
            more = await rest(http, second_url, response, told[-1]["sequence_number"])
            told += more
            print(f"the second server sent {len(more)} more, to {more[-1]['type']}")
            numbers = [event["sequence_number"] for event in told]
            assert numbers == list(range(len(numbers))), "no event is missing or told twice"
            assert text_of(told) == whole, "the text is that of an undisturbed run"
            print(f"all {len(whole)} characters are those of an undisturbed run")


if __name__ == "__main__":
    asyncio.run(main())
