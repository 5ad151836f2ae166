"""Environments of verifiers over a server: what it sampled goes into their traces.

verifiers sends the id of a rollout's trace with every request, as the name of its session. So a
server that records has the rollout's tokens under that name, and nothing is rendered again.
"""

import math
from collections.abc import Awaitable, Callable, Iterable
from importlib import import_module
from typing import Any

from caesura.runtime.errors import UsageError
from caesura.runtime.trajectories.adapters.turns import SampledTurn, in_time, sampled_turns
from caesura.runtime.trajectories.served import complete, fetch
from caesura.runtime.trajectories.trajectory import Trajectory


def tokens_from(base_url: str, *, api_key: str | None = None) -> Callable[[Any], Awaitable[None]]:
    """Return an `on_complete` for verifiers' `Env.run_slot`, which fills an episode's traces.

    `base_url` is the one of the client's configuration, a server's that keeps trajectories. Each
    trace gets the tokens of its session, see `fill_trace`, and the session gets the trace's reward
    and is complete. What it returns also takes a `Trace`.

    Awaiting it raises `UsageError` as `fill_trace` does, and for what the server refuses.
    """

    async def fill(episode: Any) -> None:
        for trace in getattr(episode, "traces", [episode]):
            if not any(node.sampled for node in trace.nodes):
                continue  # its session was never asked for
            fill_trace(trace, await fetch(base_url, trace.id, api_key=api_key))
            reward = trace.reward
            given = reward if reward is not None and math.isfinite(reward) else None
            await complete(base_url, trace.id, given, api_key=api_key)

    return fill


def fill_trace(trace: Any, trajectories: Iterable[Trajectory]) -> None:
    """Give the nodes of a `Trace` of verifiers the tokens that were sampled for it.

    `trajectories` are those of its session: as `fetch` returns them, with those below. Each call
    of the trace gets the next turn with as many tokens as its usage tells. The graph is built again
    by verifiers' own code. So a message is there twice where the chat template has rewritten it,
    and the calls lead to their nodes. The scaffold of a prompt stands in the node of its answer.

    Raises `UsageError` without the package, and if a call has no turn: such as one in which the
    server ran tools, whose answer is several turns.
    """
    graph, types = _module("graph"), _module("types")
    turns = [turn for each in trajectories for turn in sampled_turns(each)]
    left = in_time(turns, lambda turn: turn.part.started_at or 0.0)
    usages = {call.node: call.usage for call in trace.calls}
    made = type(trace).model_construct(nodes=[], calls=[], tools=[], mm_token_type_id_map={})
    places: dict[int, int] = {}
    for place, node in enumerate(trace.nodes):
        if not node.sampled:
            continue
        line = _line(trace.nodes, place)
        turn = _taken(left, usages.get(place), trace.id)
        prompt = [trace.nodes[each].message for each in line[:-1]]
        pending = graph.prepare_turn(made, prompt, trace.nodes[line[0]].tools)
        tokens = types.TurnTokens(
            prompt_ids=turn.context,
            completion_ids=list(turn.part.tokens),
            completion_logprobs=[] if turn.logprobs is None else list(turn.logprobs),
        )
        answer = types.Response(
            id="", created=0, model="", message=node.message, finish_reason=None, tokens=tokens
        )
        places |= zip(line, _line(made.nodes, pending.commit(answer)), strict=True)
    for place in graph.leaves(trace):
        if place not in places:  # a prompt that nothing was sampled for
            line = _line(trace.nodes, place)
            messages = [trace.nodes[each].message for each in line]
            graph.prepare_turn(made, messages, trace.nodes[line[0]].tools).commit_prompt()
    for before, now in places.items():
        old, new = trace.nodes[before], made.nodes[now]
        new.timestamp = old.timestamp
        new.semantic_parents = [
            each.model_copy(update={"node": places.get(each.node, each.node)})
            for each in old.semantic_parents
        ]
    for call in trace.calls:
        call.node = places.get(call.node)
    trace.nodes = made.nodes
    trace._head_index = {}  # verifiers makes it again from the nodes


def _module(name: str) -> Any:
    try:
        return import_module(f"verifiers.v1.{name}")
    except ImportError as error:
        raise UsageError(
            f"traces of verifiers need the package verifiers, 0.4 or newer, and verifiers.v1.{name}"
            f" cannot be imported ({error}): run pip install 'verifiers>=0.4'"
        ) from None


def _line(nodes: list[Any], place: int | None) -> list[int]:
    """Return the places of a node and of those that it follows, from the root."""
    line: list[int] = []
    while place is not None:
        line.append(place)
        place = nodes[place].parent
    return line[::-1]


def _taken(left: list[SampledTurn], usage: Any, name: str) -> SampledTurn:
    """Take the first turn that has the tokens of a call's usage. Raises `UsageError`."""
    for place, turn in enumerate(left):
        counts = (len(turn.context), len(turn.part.tokens))
        if usage is None or counts == (usage.input_tokens, usage.completion_tokens):
            return left.pop(place)
    told = "of unknown length"
    if usage is not None:
        told = f"of {usage.input_tokens} and {usage.completion_tokens} tokens"
    have = ", ".join(f"{len(each.context)} and {len(each.part.tokens)}" for each in left) or "none"
    raise UsageError(
        f"the session {name!r} has no turn for a call of its trace {told}, prompt and answer; left"
        f" are {have}. Let the environment run all tools, and give all trajectories of the session"
    )
