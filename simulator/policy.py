"""The systems that a study compares: engines with their settings, by name."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from math import inf
from typing import Any, Literal

from caesura.intercept.kv.handling import DEFAULT_HANDLING
from caesura.scheduler.policy.names import DEFAULT_RANKING, plain
from caesura.scheduler.settings import UNTOLD, Settings

Engine = Literal["caesura", "stock", "stock-offload"]


EPOCH_SECONDS = 0.05
"""The default interval at which replicas tell their loads."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """So many replicas of an engine behind a router, which a spec names.

    They tell their loads every `epoch_seconds` simulated seconds. Raises `ValueError` for no
    replica, and for an epoch that is not above 0.
    """

    replicas: int
    router: str
    epoch_seconds: float = EPOCH_SECONDS

    def __post_init__(self) -> None:
        if self.replicas < 1:
            raise ValueError(f"there must be at least 1 replica, got {self.replicas}")
        if not 0 < self.epoch_seconds < inf:
            raise ValueError(f"an epoch must be seconds above 0, got {self.epoch_seconds:g}")


@dataclass(frozen=True, slots=True)
class Policy:
    """One system.

    `engine`: `caesura` pauses requests in the engine; `stock` is vLLM's own scheduler, where every
    segment is a new request; `stock-offload` adds vLLM's native offloading of KV blocks to the
    host. `settings` are Caesura's, as under `additional_config.caesura` of a served engine.

    `chunk_tokens` is the largest number of query tokens in a step (`max_num_scheduled_tokens`);
    Caesura's setting `chunk` may make steps smaller. `host`: the machine has host memory and a link
    to it. `session_order`: a stock engine serves a follow-up at its session's place instead of at
    the tail, by vLLM's priority scheduling. `synchronous_swap`: steps wait for copies. `free_link`:
    copies take no time and the host is unlimited, which is a bound and not a system. `in_step`:
    short loads join the step that needs them, layer by layer, as the connector's option of that
    name.
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
    names_parents: bool = False
    """Sub-agents tell the engine which session started them, so that they are one program."""
    fleet: Fleet | None = None
    """The replicas that serve together; None: one engine."""


def _ours(name: str, handling: str, ranking: str = "fcfs", **changes: Any) -> Policy:
    settings = {"handling": handling, "ranking": ranking, **changes.pop("settings", {})}
    return Policy(name, settings=settings, **changes)


STRICT = {"backfill": False, "chunk": "vllm"}

POLICIES: dict[str, Policy] = {
    policy.name: policy
    for policy in (
        _ours("caesura", DEFAULT_HANDLING, DEFAULT_RANKING),
        _ours("fcfs", "caesura"),
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
"""The named systems. A published baseline comes in the form of its paper (`...-strict`,
`...-paper`) and in its strongest form: back-filled, with Caesura's chunk budget."""

FIELDS = {one.name for one in fields(Policy)} - {"name", "engine", "settings", "fleet"}
"""The fields of a policy that a spec may change; other keys are settings."""


def parse_policy(text: str) -> Policy:
    """Return the policy of `name` or `name:key=value,key=value`.

    Keys are fields of `Policy` or settings. A setting that is a spec itself separates its
    parameters by semicolons: `ranking=x:a=1;b=2`. Raises `ValueError` that lists the names.
    """
    name, _, changes = text.partition(":")
    if name not in POLICIES:
        raise ValueError(f"unknown policy {name!r}; choose from: {', '.join(POLICIES)}")
    policy = POLICIES[name]
    settings = dict(policy.settings)
    values: dict[str, Any] = {}
    for change in filter(None, changes.split(",")):
        key, equals, value = change.partition("=")
        if not equals:
            raise ValueError(f"policy {text!r}: a change must be key=value, got {change!r}")
        (values if key in FIELDS else settings)[key] = plain(value.replace(";", ","))
    return replace(policy, name=text, settings=settings, **values)


SIZES = {
    "most_running": "most_running",
    "most_step_tokens": "chunk_tokens",
    "prefix_caching": "prefix_caching",
}
"""The facts of a recording that are fields of a policy, with their names there."""

NOT_REPLAYED = ("fair", "length_predictor")
"""Settings without effect in a replay: no record tells the tenant or the text of a prompt."""


def recorded_policy(about: Mapping[str, Any], name: str) -> Policy:
    """Return the policy under which a recording was made, by what it tells of itself.

    What an older recording does not tell has its default. Raises `ValueError` for a recording of
    vLLM's own scheduler, and for a setting that is not valid.
    """
    if about.get("engine", "caesura") != "caesura":
        raise ValueError(f"it is of the engine {about['engine']!r:.60}, not of Caesura's")
    told = {one.name for one in fields(Settings)} - {*UNTOLD, *NOT_REPLAYED}
    settings = Settings.from_mapping({key: about[key] for key in told & about.keys()}).told()
    sizes = {SIZES[key]: about[key] for key in SIZES.keys() & about.keys()}
    for key, value in sizes.items():
        wanted = bool if key == "prefix_caching" else int
        if type(value) is not wanted or (wanted is int and value < 1):
            raise ValueError(f"no engine has {key} {value!r:.60}, as the recording tells")
    return Policy(name, settings=settings, **sizes)
