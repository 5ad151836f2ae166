"""A chat that pays, with an `Idempotency-Key`."""

from typing import Any

from caesura.runtime.testing import call, calls, say
from tests.kit.server import MODEL

SCRIPT = [calls(call("pay", euros=5), text="I pay."), say("You paid five euros.")]
SAID = {"model": MODEL, "messages": [{"role": "user", "content": "Pay."}], "server_tools": ["pay"]}


async def chat(server: Any, key: str = "k", status: int = 200, **fields: Any) -> dict[str, Any]:
    headers = {"Idempotency-Key": key} if key else {}
    path = "/v1/chat/completions"
    async with server.http.post(path, json=SAID | fields, headers=headers) as response:
        body: dict[str, Any] = await response.json()
        assert response.status == status, body
        return body
