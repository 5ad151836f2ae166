"""Plain requests for responses, and their events."""

import json
from typing import Any

from tests.kit.server import MODEL

TOOL: Any = {
    "type": "function",
    "name": "weather",
    "description": "Tell the weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": False,
}


async def post(served: Any, path: str = "", **fields: Any) -> tuple[int, dict[str, Any]]:
    body = {"model": MODEL, "input": "Hello"} | fields
    body = {name: value for name, value in body.items() if value is not ...}
    async with served.http.post(f"/v1/responses{path}", json=body) as response:
        return response.status, await response.json()


async def events(served: Any, **fields: Any) -> list[dict[str, Any]]:
    body = {"model": MODEL, "input": "Hello", "stream": True} | fields
    async with served.http.post("/v1/responses", json=body) as response:
        assert response.status == 200, await response.text()
        assert response.content_type == "text/event-stream"
        return parsed(await response.text())


def parsed(text: str) -> list[dict[str, Any]]:
    found = []
    for block in text.removesuffix("\n\n").split("\n\n"):
        kind, _, data = block.partition("\n")
        event = json.loads(data.removeprefix("data: "))
        assert kind == f"event: {event['type']}"
        found.append(event)
    return found
