"""Trajectories turn by turn, in the shapes of rLLM and verifiers.

Their messages hold what `decode`, such as a tokenizer's, makes of the tokens; without it they are
empty. What is trained on are the tokens.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

from caesura.runtime.errors import UsageError
from caesura.runtime.trajectories.adapters.sequences import FINISH
from caesura.runtime.trajectories.trajectory import Branch, Segment, Source, Trajectory

S = TypeVar("S")
Decode = Callable[[list[int]], str]
"""Returns the text of tokens."""
MESSAGES: Mapping[Source, Mapping[str, str]] = {
    "sampled": {"role": "assistant"},
    "tool": {"role": "tool", "tool_call_id": ""},
    "user": {"role": "user"},
}
"""What a node's message is; a history that the template wrote is a user's."""


def to_rllm(trajectory: Trajectory, *, decode: Decode | None = None) -> list[dict[str, Any]]:
    """Return the fields of rLLM's `TraceRecord`, one dict for each turn that the session sampled.

    They stand in the order of their times, where all are known. `prompt_token_ids` is the turn's
    whole context, so that a turn begins with the tokens of the one before. Each sampled token
    stands in one `completion_token_ids`. `logprobs` is None if not known. `timestamp` and
    `latency_ms` are 0 where they are not known.

    Raises `UsageError` for a trajectory without a sampled token.
    """
    trajectory.rollout()  # raises where nothing was sampled
    made = [_trace(turn, decode) for turn in sampled_turns(trajectory)]
    return in_time(made, lambda each: float(each["timestamp"]))


@dataclass(frozen=True, slots=True)
class SampledTurn:
    """A turn that a session sampled, with its whole context."""

    branch: Branch
    place: int
    """That of its segment in the branch."""
    context: list[int]
    part: Segment

    @property
    def logprobs(self) -> tuple[float, ...] | None:
        """Those of its tokens, where they are known."""
        return self.part.logprobs


def sampled_turns(trajectory: Trajectory) -> Iterator[SampledTurn]:
    """Yield the turns that the session itself has sampled, branch by branch."""
    for each in trajectory.rollouts():
        branch = trajectory.branch(each.branch)
        context = list(each.ids[: branch.branch_point])
        for place, part in enumerate(branch.segments):
            if part.source == "sampled":
                yield SampledTurn(branch, place, list(context), part)
            context += part.tokens


def in_time(made: list[S], time: Callable[[S], float]) -> list[S]:
    """Return things in the order of their times, or as they stand if a time is not known, 0."""
    return sorted(made, key=time) if all(map(time, made)) else made


def _trace(turn: SampledTurn, decode: Decode | None) -> dict[str, Any]:
    branch, part, logprobs = turn.branch, turn.part, turn.logprobs
    sampled = list(part.tokens)
    said = {} if decode is None else {"role": "assistant", "content": decode(sampled)}
    return {
        "trace_id": f"{branch.id}/{turn.place}",
        "session_id": branch.session,
        "model": branch.model or "",
        "prompt_token_ids": turn.context,
        "response_message": said,
        "completion_token_ids": sampled,
        "logprobs": None if logprobs is None else list(logprobs),
        "finish_reason": None if part.stop_reason is None else FINISH[part.stop_reason],
        "latency_ms": 1000 * (part.seconds or 0.0),
        "token_counts": {"prompt": len(turn.context), "completion": len(sampled)},
        "timestamp": part.started_at or 0.0,
    }


def to_verifiers(trajectory: Trajectory, *, decode: Decode | None = None) -> list[dict[str, Any]]:
    """Return the fields of verifiers' `MessageNode`s, in the order of a `Trace.nodes`.

    A node is a segment, or a part of one where a branch begins. A branch of the trace is a line to
    a leaf, and has the ids and the mask of the session's branch. What branches share is there once,
    and verifiers trains on it in each of them. Sampled turns are the assistant's, results of calls
    are a tool's, and all else is a user's. A fork's trace holds what it shares with its parent.

    Raises `UsageError` for a trajectory without a sampled token.
    """
    trajectory.rollout()  # raises where nothing was sampled
    begun: defaultdict[str | None, list[int]] = defaultdict(list)
    """Where the branches that a branch is a parent of begin."""
    for branch in reversed(trajectory.branches):  # children come first
        if branch.session == trajectory.session or branch.id in begun:
            begun[branch.parent].append(branch.branch_point)
    nodes = _Nodes(decode)
    for branch in trajectory.branches:
        is_own = branch.session == trajectory.session
        if is_own or branch.id in begun:
            nodes.add(branch, begun[branch.id], is_whole=is_own)
    return nodes.made


class _Nodes:
    """Nodes of a trace, which grow branch by branch, parents first."""

    def __init__(self, decode: Decode | None) -> None:
        self.made: list[dict[str, Any]] = []
        self._decode = decode
        self._ends: dict[str, dict[int, int]] = {}
        """By branch: the places of its own nodes, by the number of tokens before their end."""

    def add(self, branch: Branch, cuts: Sequence[int], *, is_whole: bool) -> None:
        """Add a branch's own tokens, cut where others begin; unless `is_whole`, up to the last."""
        at, ends = branch.branch_point, self._ends.setdefault(branch.id, {})
        last = None if branch.parent is None else self._ends.get(branch.parent, {}).get(at)
        if branch.parent is not None and last is None:
            raise UsageError(
                f"the branch {branch.id!r} begins behind {at} tokens, which its parent"
                f" {branch.parent!r} does not have by itself"
            )
        for part, first, end in _pieces(branch, cuts):
            if not is_whole and at >= max(cuts):
                break
            self.made.append(self._node(last, part, first, end))
            last, at = len(self.made) - 1, at + end - first
            ends[at] = last

    def _node(self, parent: int | None, part: Segment, first: int, end: int) -> dict[str, Any]:
        tokens, is_sampled = list(part.tokens[first:end]), part.source == "sampled"
        logprobs = part.logprobs or ()
        message = dict(MESSAGES.get(part.source, MESSAGES["user"]))
        message["content"] = "" if self._decode is None else self._decode(tokens)
        node = {
            "parent": parent,
            "message": message,
            "sampled": is_sampled,
            "token_ids": tokens,
            "mask": [is_sampled] * len(tokens),
            "logprobs": list(logprobs[first:end]),
        }
        return node if part.started_at is None else {**node, "timestamp": part.started_at}


def _pieces(branch: Branch, cuts: Sequence[int]) -> Iterator[tuple[Segment, int, int]]:
    """Yield the parts of a branch's segments: each segment, its first token and its end in it."""
    at = branch.branch_point
    for each in branch.segments:
        length = len(each.tokens)
        inside = sorted({cut - at for cut in cuts if at < cut < at + length})
        for first, end in pairwise((0, *inside, length)):
            if end > first:
                yield each, first, end
        at += length
