"""What is compared: an engine and how it is set up, under a name."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from caesura.scheduler.named import plain

Engine = Literal["caesura", "stock", "stock-offload"]


@dataclass(frozen=True, slots=True)
class Policy:
    """One system.

    `engine`: `caesura` pauses requests in the engine; `stock` is vLLM's own scheduler, for which
    every segment is a new request; `stock-offload` is the same with vLLM's native offloading of
    KV blocks to the host. `settings` are Caesura's own, as under `additional_config.caesura` of a
    served engine.

    `chunk_tokens` is the most query tokens of a step (`max_num_scheduled_tokens`); our scheduler's
    setting `chunk` may make steps smaller. `host`: there is memory on the host, and a link to it.
    `session_order`: stock engines serve a follow-up at its session's place (vLLM's priority
    scheduling by the session's arrival) instead of at the tail. `synchronous_swap`: steps wait for
    copies. `free_link`: copies take no time and the host has no end; that is a bound to compare
    with, not a system. `in_step`: short loads join the step that needs them, layer by layer, as
    our connector's option of that name.
    """

    name: str
    engine: Engine = "caesura"
    settings: Mapping[str, Any] = field(default_factory=dict)
    chunk_tokens: int = 2048
    prefix_caching: bool = True
    host: bool = True
    session_order: bool = False
    synchronous_swap: bool = False
    free_link: bool = False
    in_step: bool = True
    most_running: int = 256
    """vLLM's `max_num_seqs`."""


def _ours(name: str, handling: str, ranking: str = "fcfs", **changes: Any) -> Policy:
    settings = {"handling": handling, "ranking": ranking, **changes.pop("settings", {})}
    return Policy(name, settings=settings, **changes)


STRICT = {"backfill": False, "chunk": "vllm"}

POLICIES: dict[str, Policy] = {
    policy.name: policy
    for policy in (
        _ours("caesura", "caesura"),
        Policy("stock", "stock", host=False),
        Policy("stock-offload", "stock-offload"),
        Policy("stock-ordered", "stock", host=False, session_order=True),
        Policy("stock-offload-ordered", "stock-offload", session_order=True),
        Policy("vllm-discard", "stock", host=False, prefix_caching=False),
        _ours("improved-discard", "discard", prefix_caching=False, host=False, settings=STRICT),
        _ours("preserve", "preserve", prefix_caching=False, host=False, settings=STRICT),
        _ours("swap", "swap", prefix_caching=False, synchronous_swap=True, settings=STRICT),
        _ours("infercept-strict", "infercept", chunk_tokens=512, settings=STRICT),
        _ours("infercept", "infercept"),
        _ours("lamps-paper", "lamps", "lamps", chunk_tokens=512, settings={"chunk": "vllm"}),
        _ours("lamps", "lamps", "lamps"),
        _ours("lamps-infercept", "infercept", "lamps"),
        _ours("ssjf", "caesura", "ssjf"),
        _ours("ttl", "ttl"),
        _ours("free-offload", "caesura", "caesura", free_link=True),
    )
}
"""The named systems. Baselines that others published stand in the form that their paper gives
(`...-strict`, `...-paper`) and in the strongest one: back-filled, with our chunk budget."""

FIELDS = {one.name for one in fields(Policy)} - {"name", "engine", "settings"}
"""What a spec may change of a policy itself."""


def parse_policy(text: str) -> Policy:
    """Read `name` or `name:key=value,key=value`; keys are fields of `Policy` or settings.

    A setting that is a spec of its own has its parameters behind semicolons: `ranking=x:a=1;b=2`.
    Raises `ValueError` that says what there is.
    """
    name, _, changes = text.partition(":")
    if name not in POLICIES:
        raise ValueError(f"no policy {name!r}; there are {', '.join(POLICIES)}")
    policy = POLICIES[name]
    settings = dict(policy.settings)
    values: dict[str, Any] = {}
    for change in filter(None, changes.split(",")):
        key, equals, value = change.partition("=")
        if not equals:
            raise ValueError(f"policy {text!r}: {change!r} is not key=value")
        (values if key in FIELDS else settings)[key] = plain(value.replace(";", ","))
    return replace(policy, name=text, settings=settings, **values)
