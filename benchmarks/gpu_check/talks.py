"""Sessions whose every token is known beforehand, and how far a pause may change them.

What a session must say is asked for first, from scratch: each stretch as a request of its own. Then
the session runs as one request that pauses at the end of each stretch, and must say the same.

On a GPU two tokens may be so close that another batch swaps them. Where the likelier of them leads
by less than `TIE`, a difference is a tie, and the rest of that session is not compared.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from vllm.v1.engine.async_llm import AsyncLLM

from benchmarks.gpu_check.engines import greedy, outputs_of
from benchmarks.handling.drive import resume_of
from benchmarks.handling.model import WORDS
from caesura.intercept.calls.watch import WatchPlan
from caesura.scheduler.vllm.client.request import LiveRequest
from caesura.scheduler.vllm.wire import WATCH_KEY

TIE = 0.05
"""In nats. Sessions compute in float32: in bfloat16 rounding moves a lead by up to half a nat."""
AHEAD = 24
LEAST = 8
"""The fewest tokens that a stretch decodes."""


@dataclass
class Talk:
    """What a session is given, what it must say in each stretch, and where ties are."""

    name: str
    given: list[list[int]]
    said: list[list[int]] = field(default_factory=list)
    leads: list[list[float]] = field(default_factory=list)
    """By how many nats each said token leads the second."""


@dataclass
class Compared:
    """How many stretches were equal, tied or different; and how their KV came back."""

    equal: int = 0
    ties: int = 0
    different: list[str] = field(default_factory=list)
    handlings: dict[str, int] = field(default_factory=dict)


def draw(name: str, seed: int, turns: int, longest: int) -> Talk:
    """Draw a session of so many turns, each given up to `longest` tokens."""
    rng = random.Random(seed)
    lengths = [rng.randint(longest // 4, longest) for _ in range(turns)]
    return Talk(name, [rng.choices(WORDS, k=length) for length in lengths])


async def foretell(llm: AsyncLLM, talk: Talk) -> None:
    """Write down what the model says in each stretch, from scratch."""
    context: list[int] = []
    for index, given in enumerate(talk.given):
        context += given
        await llm.reset_prefix_cache()
        params = greedy(AHEAD, logprobs=2)
        outputs = await outputs_of(llm, context, params, f"{talk.name}-ahead-{index}")
        ahead = [token for output in outputs for token in output.outputs[0].token_ids]
        tops = [top for output in outputs for top in output.outputs[0].logprobs or ()]
        said = ahead[: _end(ahead) + 1]
        talk.said.append(said)
        talk.leads.append([_lead(top) for top in tops[: len(said)]])
        context += said


def _end(ahead: Sequence[int]) -> int:
    """Return where a stretch ends: at a token that it has not said before."""
    fresh = [i for i in range(LEAST, len(ahead)) if ahead[i] not in ahead[:i]]
    return fresh[0] if fresh else ahead.index(ahead[-1])


def _lead(top: dict) -> float:
    """Return by how much the likeliest token leads the next."""
    chances = sorted((one.logprob for one in top.values()), reverse=True)
    return chances[0] - chances[1]


async def live(llm: AsyncLLM, talk: Talk, compared: Compared) -> None:
    """Run the session as one request that pauses; compare what it says."""
    last = ""
    request: LiveRequest | None = None
    before: list[int] = []
    try:
        for index, given in enumerate(talk.given):
            watch = WatchPlan(("hermes",), turn="holding")
            params = greedy(
                2 * AHEAD,
                stop_token_ids=[talk.said[index][-1]],
                extra_args={WATCH_KEY: watch.to_wire()},
            )
            if request is None:
                request = LiveRequest(llm, f"{talk.name}-live", given, params)
            else:
                request.push([before[-1], *given], params)
            before = []
            async for output in request.turn():
                before += output.outputs[0].token_ids
                last = _handling(output.kv_transfer_params) or last
            if index:
                compared.handlings[last] = compared.handlings.get(last, 0) + 1
            if not _agrees(talk, index, before, compared):
                await request.abort()
                return
        assert request is not None
        await request.end()
    except BaseException:
        if request is not None:
            await request.abort()
        raise


def _agrees(talk: Talk, index: int, said: list[int], compared: Compared) -> bool:
    """Compare one stretch; return whether the session can go on."""
    wanted = talk.said[index]
    if said == wanted:
        compared.equal += 1
        return True
    pairs = zip(said, wanted, strict=False)
    at = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(said), len(wanted)))
    if at < len(wanted) and talk.leads[index][at] < TIE:
        compared.ties += 1
    else:
        compared.different.append(
            f"{talk.name}, stretch {index}, token {at}: {said[at : at + 3]} instead of"
            f" {wanted[at : at + 3]}"
        )
    return False


def _handling(params: dict | None) -> str:
    return str((resume_of(params) or {}).get("handling") or "")
