"""Trajectories in ATIF 1.8, the Agent Trajectory Interchange Format of Harbor, with token ids.

A document of ATIF is one line of steps, so each branch of a session is a document. The last branch
holds the others among its `subagent_trajectories`, as it does the sessions below it. Its `extra`
holds what the format has no fields for, so that our own files are read back as they were.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from caesura.distribution import __version__
from caesura.runtime.errors import UsageError
from caesura.runtime.recording.atif import SCHEMA_VERSION
from caesura.runtime.trajectories.recorder import TrajectoryRecorder
from caesura.runtime.trajectories.trajectory import Branch, Segment, Source, Trajectory, cut
from caesura.scheduler.session_log import LoggedTurn, SampledFacts

OURS = "caesura"
"""The name in `extra` of what only we read."""
BELOW = "subagent_trajectories"
NOTE = (
    "Other branches of the session stand among subagent_trajectories, with its session_id. A step"
    " that branches share is a copy in all but one of them."
)
Decode = Callable[[list[int]], str]
"""Returns the text of tokens."""
Document = dict[str, Any]
Place = tuple[str, int]
"""A segment by its branch and its number there."""
_JSON: TypeAdapter[Trajectory] = TypeAdapter(Trajectory)


def to_atif(trajectories: Iterable[Trajectory], *, decode: Decode | None = None) -> Document:
    """Return a session's trajectory, and those of the sessions below it, as one document.

    The first is the session's. Each other one is embedded in its parent's document. The texts of
    steps are what `decode`, such as a tokenizer's, makes of the tokens, and empty without it. A
    sampled turn has the ids of its whole prompt, its own, and log probabilities if they are known.

    Raises `UsageError` for no trajectory, for one whose parent does not stand before it, and if
    nothing was sampled in the first.
    """
    given = list(trajectories)
    if not given:
        raise UsageError(f"there is nothing to write in ATIF: give trajectories, got {given!r}")
    given[0].rollout()  # raises where nothing was sampled
    made = {given[0].session: _session(given[0], decode)}
    for each in given[1:]:
        if each.session in made or each.parent not in made:
            raise UsageError(
                "a document in ATIF holds a session, then those below it, each once and behind its"
                f" parent; got {each.session!r} below {each.parent!r} behind {', '.join(made)}"
            )
        made[each.session] = _session(each, decode)
        made[str(each.parent)].setdefault(BELOW, []).append(made[each.session])
    return made[given[0].session]


def from_atif(document: Any) -> list[Trajectory]:
    """Return the trajectories of a document in ATIF: the session's, then those below it.

    Those of `to_atif` equal those given. Of another document the tree follows from the token ids
    of its steps. Raises `UsageError` for what is no ATIF, and for steps without token ids.
    """
    version = document.get("schema_version") if isinstance(document, dict) else None
    if not str(version).startswith("ATIF-v"):
        raise UsageError(
            f"this is no document in ATIF: its schema_version is {version!r}; give one that begins"
            " with 'ATIF-v'"
        )
    try:
        return list(_read(document, None))
    except (ValidationError, LookupError, TypeError, ValueError, AttributeError) as error:
        name = document.get("session_id")
        raise UsageError(f"the session {name!r} in ATIF is broken: {error!r}") from None


def write_atif(
    path: Path | str, trajectories: Iterable[Trajectory], *, decode: Decode | None = None
) -> None:
    """Write a session's trajectory, and those below it, to a file in ATIF; see `to_atif`.

    Raises `UsageError` as `to_atif` does, and for a file that cannot be written.
    """
    text = json.dumps(to_atif(trajectories, decode=decode))
    try:
        Path(path).write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from None


def read_atif(path: Path | str) -> list[Trajectory]:
    """Return the trajectories of a file in ATIF; see `from_atif`.

    Raises `UsageError` as `from_atif` does, and for a file that cannot be read.
    """
    try:
        return from_atif(json.loads(Path(path).read_bytes()))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: this is no JSON: {error}") from None
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


# -- writing ---------------------------------------------------------------------------------------


def _session(trajectory: Trajectory, decode: Decode | None) -> Document:
    """Return the document of a session's last branch, which holds its others."""
    own = [each for each in trajectory.branches if each.session == trajectory.session]
    main = (own or [*trajectory.branches])[-1:]
    others = [each for each in trajectory.branches if each not in main]
    told: set[Place] = set()
    made = [_document(trajectory, each, decode, told) for each in (*main, *others)]
    first = made[0] if made else _document(trajectory, None, decode, told)
    first["extra"] = {OURS: _without_ids(trajectory)}
    if trajectory.rewards:
        first["final_metrics"]["extra"] = {"rewards": dict(trajectory.rewards)}
    if made[1:]:
        first |= {"notes": NOTE, BELOW: made[1:]}
    return first


def _document(
    trajectory: Trajectory, branch: Branch | None, decode: Decode | None, told: set[Place]
) -> Document:
    """Return the steps of a branch from its first token; `told` has turns of other documents."""
    agent = {"name": OURS, "version": __version__}
    if branch is not None and branch.model is not None:
        agent["model_name"] = branch.model
    steps: list[Document] = []
    context: list[int] = []
    for place, part, is_whole in () if branch is None else _line(trajectory, branch):
        text = "" if decode is None else decode(list(part.tokens))
        if part.source == "sampled":
            steps.append(_turn(part, context, text))
            if place in told or not is_whole:
                steps[-1]["is_copied_context"] = True
            else:
                told.add(place)
        elif part.source == "tool" and steps and steps[-1]["source"] == "agent":
            results = steps[-1].setdefault("observation", {"results": []})["results"]
            results.append({"content": text})
        else:
            steps.append({"source": "system" if part.source == "tool" else "user", "message": text})
        context += part.tokens
    return {
        "schema_version": SCHEMA_VERSION,
        "session_id": trajectory.session,
        "trajectory_id": trajectory.session if branch is None else branch.id,
        "agent": agent,
        "steps": [{"step_id": number, **step} for number, step in enumerate(steps, 1)],
        "final_metrics": _sums(steps),
    }


def _line(trajectory: Trajectory, branch: Branch) -> Iterator[tuple[Place, Segment, bool]]:
    """Yield the segments of a branch from its first token, and whether each is there as a whole."""
    left = branch.branch_point
    if branch.parent is not None:
        for place, part, is_whole in _line(trajectory, trajectory.branch(branch.parent)):
            for kept in cut([part], left):
                yield place, kept, is_whole and len(kept.tokens) == len(part.tokens)
            left = max(left - len(part.tokens), 0)
    for number, part in enumerate(branch.segments):
        yield (branch.id, number), part, True


def _turn(part: Segment, context: list[int], text: str) -> Document:
    step: Document = {"source": "agent", "message": text, "llm_call_count": 1}
    if part.started_at is not None:
        with suppress(ValueError, OverflowError, OSError):  # no time of a calendar
            step["timestamp"] = datetime.fromtimestamp(part.started_at, UTC).isoformat()
    step["metrics"] = {
        "prompt_tokens": len(context),
        "completion_tokens": len(part.tokens),
        "prompt_token_ids": list(context),
        "completion_token_ids": list(part.tokens),
    }
    if part.cached_tokens is not None:
        step["metrics"]["cached_tokens"] = part.cached_tokens
    if part.logprobs is not None:
        step["metrics"]["logprobs"] = list(part.logprobs)
    return step


def _sums(steps: list[Document]) -> Document:
    sums: Document = {"total_steps": len(steps)}
    for name in ("prompt_tokens", "completion_tokens", "cached_tokens"):
        known = [each["metrics"][name] for each in steps if name in each.get("metrics", {})]
        if known:
            sums[f"total_{name}"] = sum(known)
    return sums


def _without_ids(trajectory: Trajectory) -> Document:
    """Return a trajectory as JSON, with the number of tokens for ids that stand in a step."""
    made: Document = _JSON.dump_python(trajectory, mode="json")
    for branch in made["branches"]:
        sampled = [each["source"] == "sampled" for each in branch["segments"]]
        in_steps = len(sampled) - sampled[::-1].index(True) if any(sampled) else 0
        for part in branch["segments"][:in_steps]:
            part["tokens"] = len(part["tokens"])
    return made


# -- reading ---------------------------------------------------------------------------------------


def _read(document: Document, parent: str | None) -> Iterator[Trajectory]:
    """Yield the trajectory of a session's document, then those below it."""
    told, below = (document.get("extra") or {}).get(OURS), document.get(BELOW) or ()
    name = document.get("session_id") or document.get("trajectory_id") or ""
    if told is not None:
        others = [each for each in below if not _is_session(each)]
        ids = {each["trajectory_id"]: _ids(each) for each in (document, *others)}
        yield _JSON.validate_python(_with_ids(told, ids))
    else:
        name = name if parent is None else document.get("trajectory_id") or name
        others = []
        yield _grown(document, str(name), parent)
    for each in below:
        if told is None or _is_session(each):
            yield from _read(each, str(name))


def _is_session(document: Document) -> bool:
    return OURS in (document.get("extra") or {})


def _ids(document: Document) -> list[int]:
    """Return the ids of all tokens up to the last that was sampled."""
    turns = [each["metrics"] for each in document["steps"] if each["source"] == "agent"]
    last = turns[-1] if turns else {"prompt_token_ids": [], "completion_token_ids": []}
    return [*last["prompt_token_ids"], *last["completion_token_ids"]]


def _with_ids(told: Document, ids: dict[str, list[int]]) -> Document:
    """Return what `_without_ids` made, with the ids of the branches' documents."""
    branches = []
    for branch in told["branches"]:
        at, parts = branch["branch_point"], []
        for part in branch["segments"]:
            tokens = part["tokens"]
            if isinstance(tokens, int):
                at, tokens = at + tokens, ids[branch["id"]][at : at + tokens]
                if len(tokens) != part["tokens"]:
                    raise ValueError(f"steps of the branch {branch['id']!r} lack tokens")
            parts.append({**part, "tokens": tokens})
        branches.append({**branch, "segments": parts})
    return {**told, "branches": branches}


def _grown(document: Document, name: str, parent: str | None) -> Trajectory:
    """Return the tree of a document's token ids."""
    recorder = TrajectoryRecorder(name)
    source: Source = "user"
    default = document["agent"].get("model_name")
    for step in document["steps"]:
        if step["source"] != "agent":
            source = "user"
            continue
        metrics = step.get("metrics") or {}
        prompt, sampled = (metrics.get(f"{each}_token_ids") for each in ("prompt", "completion"))
        if prompt is None or sampled is None:
            if step.get("llm_call_count") == 0 or step.get("is_copied_context"):
                continue
            raise UsageError(
                f"step {step['step_id']} of the session {name!r} lacks prompt_token_ids or"
                " completion_token_ids; only what has the ids of its tokens can be read"
            )
        one = recorder.beside()
        if model := step.get("model_name") or default:
            one.uses(model)
        at = step.get("timestamp")
        one.begin(LoggedTurn(prompt), source, at and datetime.fromisoformat(at).timestamp())
        one.sampled(sampled, SampledFacts(metrics.get("logprobs")))
        if step.get("tool_calls"):
            one.stops("call")
        one.leave()
        source = "tool" if step.get("observation") else "user"
    return replace(recorder.trajectory(), parent=parent)
