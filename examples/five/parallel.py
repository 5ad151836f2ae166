"""Three agents at once for another.

python examples/five/parallel.py Qwen/Qwen3-8B    # or http://HOST:8000/v1
"""

import sys
from typing import Any

from caesura import Agent


def main(model: Any = None) -> str:
    weather = Agent(model, name="weather", instructions="Say how warm a city is.")
    guide = Agent(model, [weather], instructions="Ask for all cities in one turn, and compare.")
    return guide.run_sync("Where is it warmest: in Oslo, Rome or Lima?").text


if __name__ == "__main__":
    print(main(*sys.argv[1:]))
