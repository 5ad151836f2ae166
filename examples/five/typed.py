"""An answer of a type, with a tool.

    python examples/five/typed.py Qwen/Qwen3-8B    # or http://HOST:8000/v1

The bundled model is too small to stop calling here.
"""

import sys
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from caesura import Agent


class Offer(BaseModel):
    item: Literal["lamp", "chair"]
    euros: Annotated[int, Field(ge=0, le=999)]


def price(item: str) -> int:
    """Look up what an item costs."""
    return {"lamp": 24, "chair": 59}[item]


def main(model: Any = None, **options: Any) -> Offer:
    agent = Agent(model, [price], output=Offer, **options)
    return agent.run_sync("How much do 7 lamps cost?").output


if __name__ == "__main__":
    print(main(*sys.argv[1:]))
