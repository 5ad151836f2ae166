"""A web service with one agent for all routes, by FastAPI.

    uvicorn --app-dir examples 15_fastapi:app
    curl 'http://127.0.0.1:8000/price?of=lamp'
    curl -N 'http://127.0.0.1:8000/stream?of=lamp'

The engine runs in a thread of its own, so `async` routes, `def` routes and streams share it. A
client that goes away ends its run, whose KV cache is freed.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager

from fastapi import FastAPI
from fastapi.responses import StreamingResponse

from caesura import Agent
from caesura.runtime.events import TextDelta, ToolReturned

PRICES = {"lamp": 24, "chair": 59, "book": 12}


def price(item: str) -> int:
    """Look up what an item costs.

    Args:
        item: one of lamp, chair and book.
    """
    return PRICES[item]


agent = Agent(tools=[price], instructions="Answer in one sentence.")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None, None]:
    """Start the engine before the first request, and stop it at the end."""
    async with agent:
        await agent.start()
        yield


app = FastAPI(lifespan=lifespan)


@app.get("/price")
async def ask(of: str) -> dict[str, str]:
    """Answer at once."""
    answer = await agent.run(f"What does a {of} cost?")
    return {"answer": answer.text}


@app.get("/price-by-thread")
def ask_in_a_thread(of: str) -> dict[str, str]:
    """Answer from a route that is not async, which FastAPI runs in a thread."""
    return {"answer": agent.run_sync(f"What does a {of} cost?").text}


@app.get("/stream")
async def stream(of: str) -> StreamingResponse:
    """Show the text while the model writes it, and the calls that are made."""

    async def text() -> AsyncGenerator[str, None]:
        async with aclosing(agent.stream(f"What does a {of} cost?")) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    yield event.text
                elif isinstance(event, ToolReturned):
                    yield f"[{event.call.name}: {event.result.content}]\n"

    return StreamingResponse(text(), media_type="text/plain")
