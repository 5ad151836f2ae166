"""Clients of all manners, and the judgement of what they got."""

import asyncio
import json
import random
import time
import traceback
import uuid
from collections.abc import Callable
from typing import Any

import httpx

from benchmarks.campaign.report import Outcome

from .odd_tools import NOTE, ODD
from .server import Server

ANSWER_SECONDS = 300.0
"""An answer that takes longer is lost; none of these takes ten seconds on an idle machine."""
MANNERS = {
    "whole": 2,
    "stream": 2,
    "slow": 1,
    "abort": 1,
    "vanish": 1,
    "keyed": 2,
    "background": 4,
    "note": 2,
    "odd": 3,
    "environment": 2,
}
TOOLS = {"note": [NOTE], "odd": list(ODD), "environment": ["environment"]}
"""The tools of the manners that are made to call one."""
QUESTIONS = [
    *(f"What is {a} * {b}?" for a, b in ((48, 17), (2, 3), (99, 99), (1234, 56))),
    "Write a sentence about 15 boxes of 24 pencils.",
    "Write a sentence about 9 bags of 13 apples.",
]
MODEL = {"model": "caesura-tiny", "temperature": 0}


class Refused(Exception):
    """The server answered with an error."""


class NotNow(Exception):
    """The server said that it does not take work now."""


class Clients:
    """Asks one server in manners drawn by seed, and judges the answers."""

    def __init__(
        self, server: Server, rng: random.Random, outcome: Outcome, found: Callable[..., None]
    ) -> None:
        """Count into `outcome`; `found(kind, seen)` is told of each defect."""
        self._server, self._rng, self._outcome, self._found = server, rng, outcome, found
        self._chat: dict[str, str] = {}
        self._response: dict[str, str] = {}
        self._decks: dict[tuple[str, ...], list[str]] = {}
        self.notes = {"asked": 0, "written": 0, "unsure": 0}
        """Sessions that must write one note; those told that it was written; those not told."""

    async def undisturbed(self, http: httpx.AsyncClient) -> None:
        """Ask everything alone, without faults; these answers are the right ones."""
        for question in QUESTIONS:
            self._chat[question] = await self._whole(http, question)
            ended = await self._background(http, {"input": question})
            self._response[question] = text_of(ended)
        await self._forced(http, "environment", "environment")
        self.notes["asked"] += 1
        await self._forced(http, "note", NOTE)

    async def go(self, http: httpx.AsyncClient, goes_on: Callable[[int], bool]) -> None:
        """Ask until `goes_on(sessions)` is false."""
        while goes_on(self._outcome.sessions):
            self._outcome.sessions += 1
            manner = self._dealt([one for one, times in MANNERS.items() for _ in range(times)])
            question = self._rng.choice(QUESTIONS)
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    end = await self._session(http, question, manner)
            except (httpx.HTTPError, TimeoutError, Refused) as error:
                end = "failed"
                seen = "".join(traceback.format_exception(error, limit=-3))
                self._found("lost", f"{seen}{manner} {question!r}: {error!r}")
            self._outcome.ends[f"{manner}: {end}"] += 1

    def _dealt(self, kinds: list[str]) -> str:
        """Draw from a shuffled deck, so that short campaigns, too, meet every kind."""
        deck = self._decks.setdefault(tuple(kinds), [])
        if not deck:
            deck += self._rng.sample(kinds, len(kinds))
        return deck.pop()

    async def _session(self, http: httpx.AsyncClient, question: str, manner: str) -> str:
        """Ask again while the server says that it does not take work; return how it ended."""
        key = uuid.UUID(int=self._rng.getrandbits(128)).hex
        chosen = self._dealt(TOOLS.get(manner, [""]))
        if manner == "note":
            self.notes["asked"] += 1
        while True:
            began, life = time.monotonic(), self._server.life
            try:
                return await self._ask(http, question, manner, key, chosen)
            except NotNow:
                self._outcome.ends["(told to come back later)"] += 1
            except httpx.TransportError:
                if not self._was_killed(life):
                    raise
                if manner != "keyed":
                    return "cut off by the server's death"
            except Refused:
                if began > self._server.disk_full_until:
                    raise
                return "refused while the disk was full"
            await self._server.ready()
            await asyncio.sleep(0.5)

    async def _ask(
        self, http: httpx.AsyncClient, question: str, manner: str, key: str, chosen: str
    ) -> str:
        if chosen:
            return await self._forced(http, manner, chosen)
        if manner == "background":
            ended = await self._background(http, {"input": question})
            return self._judged(manner, question, text_of(ended), self._response[question])
        if manner == "abort":
            return await self._aborted(http, question)
        if manner in ("whole", "keyed"):
            headers = {"Idempotency-Key": key} if manner == "keyed" else {}
            text = await self._whole(http, question, headers)
        else:
            leaves_after = self._rng.randrange(8) if manner == "vanish" else -1
            told = await self._streamed(http, question, manner == "slow", leaves_after)
            if told is None:
                return "left in mid-stream"
            text = told
        return self._judged(manner, question, text, self._chat[question])

    def _judged(self, manner: str, question: str, text: str, wanted: str) -> str:
        if text == wanted:
            return "answered, equal"
        self._found("differs", f"{manner} {question!r}: {text!r} for {wanted!r}")
        return "answered, another text"

    async def _aborted(self, http: httpx.AsyncClient, question: str) -> str:
        work = asyncio.create_task(self._whole(http, question))
        await asyncio.wait([work], timeout=self._rng.uniform(0, 3))
        work.cancel()
        await asyncio.wait([work])
        return "left at once"

    async def _whole(
        self, http: httpx.AsyncClient, question: str, headers: dict[str, str] | None = None
    ) -> str:
        url = f"{self._server.url}/v1/chat/completions"
        response = await http.post(url, json=chat(question), headers=headers)
        await accepted(response)
        return str(response.json()["choices"][0]["message"]["content"])

    async def _streamed(
        self, http: httpx.AsyncClient, question: str, slow: bool, leaves_after: int
    ) -> str | None:
        """Return the text, or None if the client left."""
        text: list[str] = []
        url, asked = f"{self._server.url}/v1/chat/completions", chat(question) | {"stream": True}
        async with http.stream("POST", url, json=asked) as response:
            await accepted(response)
            async for event in events_of(response):
                if "error" in event:
                    raise Refused(f"an error in the stream: {event['error']}")
                text += [choice["delta"].get("content") or "" for choice in event["choices"]]
                if leaves_after == 0:
                    return None
                leaves_after -= 1
                if slow:
                    await asyncio.sleep(0.1)
        return "".join(text)

    async def _forced(self, http: httpx.AsyncClient, manner: str, tool: str) -> str:
        """Make the model call a tool; its answer to what came back may be any."""
        body = {
            "input": "Go on.",
            "server_tools": [tool],
            "tool_choice": {"type": "function", "name": tool},
            "max_tool_calls": 1,
            "max_output_tokens": 80,
        }
        ended = await self._background(http, body)
        calls = (ended.get("caesura") or {}).get("calls") or []
        if not calls:
            raise Refused(f"the response has no call of {tool}: {json.dumps(ended)[:600]}")
        if manner == "note":
            written = calls[0]["content"] == "noted"
            self.notes["written" if written else "unsure"] += 1
            return "written" if written else "not sure whether it was written"
        return f"ended ({ODD.get(tool, 'environment')})"

    async def _background(self, http: httpx.AsyncClient, asked: dict[str, Any]) -> dict[str, Any]:
        """Ask in the background, come back whenever the stream breaks, and return the response.

        Raises `httpx.TransportError` if the server died before it told the response's id.
        """
        body = {**MODEL, "server_tools": ["calculator"], "max_output_tokens": 120, **asked}
        seen: list[dict[str, Any]] = []
        url, life = f"{self._server.url}/v1/responses", self._server.life
        try:
            asked_now = body | {"background": True, "stream": True}
            async with http.stream("POST", url, json=asked_now) as response:
                await self._follow(response, seen)
        except httpx.TransportError:
            if not seen or not self._was_killed(life):
                raise
        if not seen:
            raise Refused("a response in the background ended before its first event")
        while not is_over(seen):
            await self._server.ready()
            life = self._server.life
            query = f"?stream=true&starting_after={seen[-1]['sequence_number']}"
            back = f"{url}/{seen[0]['response']['id']}{query}"
            try:
                async with http.stream("GET", back) as response:
                    self._outcome.ends["(came back by starting_after)"] += 1
                    await self._follow(response, seen)
            except NotNow:
                self._outcome.ends["(told to come back later)"] += 1
            except httpx.TransportError:
                if not self._was_killed(life):
                    raise
            await asyncio.sleep(0.2)
        numbers = [event["sequence_number"] for event in seen]
        if numbers != list(range(len(numbers))):
            self._found("differs", f"the events of a response have the numbers {numbers}")
        ended: dict[str, Any] = seen[-1]["response"]
        if ended["status"] not in ("completed", "incomplete"):
            raise Refused(f"a response in the background ended so: {json.dumps(ended)[:1000]}")
        return ended

    async def _follow(self, response: httpx.Response, seen: list[dict[str, Any]]) -> None:
        await accepted(response)
        async for event in events_of(response):
            if event["type"] == "error":
                raise Refused(f"an error in the stream: {event}")
            seen.append(event)

    def _was_killed(self, life: int) -> bool:
        return self._server.down or self._server.life != life


async def decline(server: Server, http: httpx.AsyncClient, ending: asyncio.Event) -> None:
    """Be the person who is asked about calls that nobody knows the end of: none runs again."""
    while not ending.is_set():
        await asyncio.sleep(1)
        try:
            items = (await http.get(f"{server.url}/v1/pending")).json().get("data", [])
            for item in items:
                url = f"{server.url}/v1/pending/{item['id']}"
                await http.post(url, json={"approve": False, "reason": "It may be there already."})
        except httpx.TransportError:
            await server.ready()


async def accepted(response: httpx.Response) -> None:
    """Raise `NotNow` for a 503, and `Refused` for another error."""
    if response.status_code == 200:
        return
    text = (await response.aread()).decode(errors="replace")[:600]
    refused = NotNow if response.status_code == 503 else Refused
    raise refused(f"status {response.status_code}: {text}")


async def events_of(response: httpx.Response) -> Any:
    """Yield the events of a stream."""
    async for line in response.aiter_lines():
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: "))


def is_over(seen: list[dict[str, Any]]) -> bool:
    """Return whether a response has ended."""
    ends = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")
    return bool(seen) and seen[-1]["type"] in ends


def text_of(response: dict[str, Any]) -> str:
    """Return the text of a whole response."""
    return "".join(
        part["text"]
        for item in response["output"]
        if item["type"] == "message"
        for part in item["content"]
    )


def chat(question: str) -> dict[str, Any]:
    """Return a request whose answer is the same each time."""
    messages = [{"role": "user", "content": question}]
    return {**MODEL, "messages": messages, "server_tools": ["calculator"], "max_tokens": 120}
