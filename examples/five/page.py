"""An agent that streams to a page, on a model elsewhere.

    caesura serve &
    uvicorn examples.five.page:app

The answer is read on where it was if the connection to the server breaks.
"""

import json
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from caesura import Agent


def page(model: Any) -> Starlette:
    agent = Agent(model, ["calculator"])

    async def ask(request: Request) -> StreamingResponse:
        async def lines() -> AsyncIterator[str]:
            async for event in agent.stream(request.query_params["q"]):
                data = json.dumps(asdict(event), default=str)
                yield f"event: {type(event).__name__}\ndata: {data}\n\n"

        return StreamingResponse(lines(), media_type="text/event-stream")

    return Starlette(routes=[Route("/ask", ask)])


app = page("http://127.0.0.1:8000/v1")
