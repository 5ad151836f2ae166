"""Coding agents in front of a server: `caesura serve` against vLLM's own server, in pairs.

Each agent sends its whole history with every request, as coding agents do: a long prompt, then call
and result, turn by turn. A grammar leaves the model of random weights nothing but calls to say. All
contexts together exceed the KV cache, and the agents' own work makes the pauses.
"""

import asyncio
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.door import free_port, server
from benchmarks.gpu_check.engines import BLOCK_SIZE, engine_args
from benchmarks.gpu_check.finding import Finding, Rows
from benchmarks.gpu_check.sizes import Scale
from benchmarks.gpu_check.turn import Turn
from benchmarks.handling.figures import percentile
from benchmarks.handling.model import benchmark_model
from benchmarks.pairs import ratio

MODEL = "coder"
WORDS = ("def", "return", "import", "value", "error", "line", "file", "test", "the", "list")
MOST_ROUNDS = 6
COMMANDS = ("pytest -q tests/test_price.py", "sed -n 1,80p src/shop/price.py", "git diff --stat")
CALLS = [
    "<tool_call>\n"
    + json.dumps({"name": "shell", "arguments": {"command": command}})
    + "\n</tool_call>"
    for command in COMMANDS
]
"""What a model may say: one of these calls, whatever its weights."""
TOOL = {
    "type": "function",
    "function": {
        "name": "shell",
        "description": "Run a command in the working copy.",
        "parameters": {
            "type": "object",
            "properties": {"command": {"type": "string"}},
            "required": ["command"],
        },
    },
}


@dataclass(frozen=True)
class Step:
    """One request: its seconds, and its prompt's tokens."""

    seconds: float
    prompt_tokens: int
    cached_tokens: int


@dataclass
class Seen:
    """What all rounds of one server saw, a figure for each round."""

    mean: list[float] = field(default_factory=list)
    p99: list[float] = field(default_factory=list)
    computed: list[float] = field(default_factory=list)

    def add(self, agents: Sequence[Sequence[Step]]) -> None:
        """Count a round: of each agent its turns, of which all but the first are follow-ups."""
        later = [turn for turns in agents for turn in turns[1:]]
        seconds = [turn.seconds for turn in later]
        self.mean.append(statistics.fmean(seconds))
        self.p99.append(percentile(seconds, 0.99))
        self.computed.append(statistics.fmean(t.prompt_tokens - t.cached_tokens for t in later))


SHOWN = {
    "mean": "a follow-up, mean s",
    "p99": "p99 s",
    "computed": "prompt tokens that it computed",
}


async def check(scale: Scale, turn: Turn) -> Finding:
    """Run the same agents against both servers, round by round."""
    seen = {"vllm serve": Seen(), "caesura serve": Seen()}
    # In a thread: what starts a server waits for it in an event loop of its own.
    with ExitStack() as stack:
        # What a server remembers of tools and responses is not the user's, and gone afterwards.
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        environment = {**os.environ, "XDG_CACHE_HOME": folder, "XDG_STATE_HOME": folder}
        commands = _commands(scale, turn.calibration)
        urls = {
            name: await asyncio.to_thread(
                stack.enter_context, server(command, free_port(), environment)
            )
            for name, command in commands.items()
        }
        end = await turn.begin() + time.perf_counter()
        took = 0.0
        for index in range(-1, MOST_ROUNDS):
            began = time.perf_counter()
            if index > 0 and began + took > end:
                break
            for name in list(urls) if index % 2 else list(reversed(urls)):
                agents = await _round(urls[name], scale, index)
                if index >= 0:  # the first one warms up
                    seen[name].add(agents)
            took = time.perf_counter() - began
        await asyncio.to_thread(stack.close)
    return _finding(scale, seen)


def _commands(scale: Scale, calibration: Path) -> dict[str, list[str]]:
    """Return the arguments of Python that start both servers, but for the port."""
    model = benchmark_model(scale.model)
    named = ("--model", model, "--served-model-name", MODEL, "--port", "{port}")
    engine = _flags(engine_args(scale, scale.model, scale.agent_context, scale.load_pool))
    calls = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes")
    told = ("--enable-prompt-tokens-details", "--disable-uvicorn-access-log")
    host = ("--host", "127.0.0.1", *told)
    known = ("--calibration", str(calibration)) if calibration.exists() else ("--no-calibrate",)
    ours = ("--host-gib", str(scale.agent_host_gib), *known, "--no-trace")
    return {
        "vllm serve": ["vllm.entrypoints.openai.api_server", *named, *host, *calls, *engine],
        "caesura serve": ["caesura", "serve", *named, *ours, "--format", "hermes", "--", *engine],
    }


def _flags(args: Mapping[str, Any]) -> list[str]:
    """Write fields of vLLM's `AsyncEngineArgs` as options of its server."""
    flags = []
    for name, value in args.items():
        option = name.replace("_", "-")
        if name == "use_tqdm_on_load":  # an option of the library alone
            continue
        if isinstance(value, bool):
            flags.append(f"--{option}" if value else f"--no-{option}")
        else:
            flags += [f"--{option}", str(value)]
    return flags


async def _round(url: str, scale: Scale, index: int) -> list[list[Step]]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as http:
        agents = range(scale.agents)
        return await asyncio.gather(*(_agent(http, url, scale, index, each) for each in agents))


async def _agent(
    http: aiohttp.ClientSession, url: str, scale: Scale, index: int, which: int
) -> list[Step]:
    """Run one agent. Both servers see the same texts, which no other round or agent shares."""
    rng = random.Random(f"{index}-{which}")
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": _text(rng, scale.agent_words)},
        {"role": "user", "content": "Mend the failing test."},
    ]
    turns = []
    for _ in range(scale.agent_turns):
        await asyncio.sleep(rng.uniform(0, 2 * scale.agent_pause_seconds))
        turn, call = await _request(http, url, messages)
        turns.append(turn)
        messages += [
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {
                "role": "tool",
                "tool_call_id": call["id"],
                "content": _text(rng, scale.agent_result_words),
            },
        ]
    return turns


def _text(rng: random.Random, words: int) -> str:
    return " ".join(rng.choices(WORDS, k=words))


async def _request(
    http: aiohttp.ClientSession, url: str, messages: Sequence[Mapping[str, Any]]
) -> tuple[Step, dict[str, Any]]:
    """Send one request; return what it took, and the call that the model made."""
    body = {
        "model": MODEL,
        "messages": messages,
        "tools": [TOOL],
        "structured_outputs": {"choice": CALLS},
        "temperature": 0,
        "max_tokens": 128,
    }
    began = time.perf_counter()
    async with http.post(f"{url}/v1/chat/completions", json=body) as response:
        if response.status != 200:
            raise RuntimeError(f"{url} answered {response.status}: {await response.text()}")
        answer = await response.json()
    taken = time.perf_counter() - began
    said, usage = answer["choices"][0]["message"], answer["usage"]
    calls = said.get("tool_calls") or []
    if len(calls) != 1 or json.loads(calls[0]["function"]["arguments"])["command"] not in COMMANDS:
        raise RuntimeError(f"{url} was to make one of {len(CALLS)} calls, and answered {said}")
    call, told = calls[0], calls[0]["function"]
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    function = {"name": told["name"], "arguments": told["arguments"]}
    turn = Step(taken, usage["prompt_tokens"], cached)
    return turn, {"id": call["id"], "type": "function", "function": function}


def _finding(scale: Scale, seen: Mapping[str, Seen]) -> Finding:
    theirs, mine = seen["vllm serve"], seen["caesura serve"]
    rows = [
        (name, *(f"{statistics.fmean(getattr(each, key)):.3g}" for key in SHOWN))
        for name, each in seen.items()
    ]
    told = {key: ratio(getattr(mine, key), getattr(theirs, key)) for key in SHOWN}
    rows.append(("ratio", *map(str, told.values())))
    title = (
        f"{scale.agents} agents of {scale.agent_turns} turns, {len(mine.mean)} rounds,"
        f" {scale.load_pool} blocks of {BLOCK_SIZE}; pauses of {scale.agent_pause_seconds:g} s in"
        " the mean. Stock: prefix caching and chunked prefill on. Ratios round by round."
    )
    figures: dict[str, float | str | bool] = {
        f"{key}_ratio": each.median for key, each in told.items()
    }
    figures["rounds"] = len(mine.mean)
    summary = f"A follow-up takes {told['mean']} of what vLLM's own server takes."
    return Finding("measured", summary, [Rows(title, ("server", *SHOWN.values()), rows)], figures)
