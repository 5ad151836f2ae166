"""What Caesura knows of a KV cache's groups of layers, and what it may therefore do at a pause.

`KINDS` has the kinds of layers for which tests show that a request resumes exactly. KV that has a
layer of any other kind is discarded at each pause: vLLM frees all of it, as at a preemption.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from vllm import __version_tuple__ as vllm_version
from vllm.config import CacheConfig, VllmConfig
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupRole,
    KVCacheGroupSpec,
    KVCacheSpec,
    MambaSpec,
    MLAAttentionSpec,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
    is_full_attention_spec,
    iter_layer_specs,
)

_PLANNED_IN = "kv_cache_planning" if vllm_version[:2] >= (0, 33) else "kv_cache_utils"

planning: Any = import_module(f"vllm.v1.core.{_PLANNED_IN}")
"""vLLM's functions that put layers into groups, and give these blocks."""


def plan_of(config: VllmConfig, specs: dict[str, KVCacheSpec], memory: int) -> KVCacheConfig:
    """Return vLLM's plan for a worker with `memory` bytes for the KV of these layers, by name."""
    groups = (planning.get_kv_cache_groups(config, specs),) if vllm_version[:2] >= (0, 33) else ()
    planned: KVCacheConfig = planning.get_kv_cache_configs(config, [specs], [memory], *groups)[0]
    return planned


KINDS: dict[type[KVCacheSpec], str] = {
    FullAttentionSpec: "full",
    MLAAttentionSpec: "latent",
    SlidingWindowSpec: "window",
    SlidingWindowMLASpec: "latent window",
    ChunkedLocalAttentionSpec: "chunks",
    MambaSpec: "state",
}
"""The names of the known kinds of layers, by vLLM's class.

A subclass is another kind: it exists since something differs, such as when blocks are given up.
"""
STATE_MODES = ("none", "align")
"""The values of `mamba_cache_mode` for which tests show that a state is kept exactly."""

RECURRENT = "recurrent state"
UNKNOWN = "unknown layout"

OF_DRAFTS = "accepted drafts may lie behind the stop (speculative decoding)"
OF_INPUTS = "it lacks the inputs of the last tokens (--use-replayssm)"


@dataclass(frozen=True, slots=True)
class Layout:
    """What the groups of one engine's KV cache allow.

    A reason is a clause for the log, and an empty text where there is none.
    """

    groups: int
    full: bool
    """Whether all layers have full attention, of a known kind."""
    recurrent: bool
    """Whether a layer keeps one state of all tokens, or may do so unknown to us."""
    unknown: str
    """Which layers are of a kind that is not known here."""
    spoilt: str
    """Why the recurrent state of a session that stops cannot be used."""
    cached: bool
    """Whether vLLM's prefix cache is on."""

    @property
    def plain(self) -> bool:
        """Whether each token has its place in one group of full attention."""
        return self.groups == 1 and self.full

    @property
    def findable(self) -> bool:
        """Whether single blocks can be released and others found again."""
        return self.cached and self.plain

    @property
    def discards(self) -> str:
        """Return why the KV of every session that stops is discarded."""
        if self.unknown:
            return self.unknown
        return f"this model has recurrent state, and {self.spoilt}" if self.spoilt else ""

    @property
    def discards_as(self) -> str:
        """Return the reason for discarded KV in records and metrics."""
        return UNKNOWN if self.unknown else RECURRENT

    @property
    def all_at_once(self) -> str:
        """Return why a request keeps all of its blocks or none."""
        if self.plain:
            return "" if self.cached else "prefix caching is off"
        if self.recurrent:
            return "it has recurrent state"
        return f"it has {self.groups} groups" if self.groups > 1 else "its layers see a part only"

    @property
    def no_follow_ups(self) -> str:
        """Return why the KV of a finished request is not kept for its follow-up."""
        if self.plain:
            return "" if self.cached else "prefix caching is off"
        return self.discards


def layout_of(config: KVCacheConfig, cache: CacheConfig, drafts: int) -> Layout:
    """Return what the groups in `config` allow, with `drafts` draft tokens in a step."""
    unknown, recurrent = unknown_in(config), has_recurrent_state(config)
    return Layout(
        groups=len(config.kv_cache_groups),
        full=all(kind_of(spec) in ("full", "latent") for spec in _specs_in(config)),
        recurrent=recurrent or bool(unknown),
        unknown=unknown,
        spoilt=_why_spoilt(cache, drafts) if recurrent else "",
        cached=bool(cache.enable_prefix_caching),
    )


def is_plain(config: KVCacheConfig) -> bool:
    """Return whether each token has its place in one group of full attention."""
    groups = config.kv_cache_groups
    return len(groups) == 1 and is_full_attention_spec(groups[0].kv_cache_spec)


def _why_spoilt(cache: CacheConfig, drafts: int) -> str:
    if drafts:
        return OF_DRAFTS
    if getattr(cache, "use_replayssm", False):
        # The runner forgets the inputs that it has not applied when the slot is given back.
        return OF_INPUTS
    return ""


def kind_of(spec: KVCacheSpec) -> str:
    """Return the name of a known kind of layer, or an empty text."""
    return "" if _strange(spec) else KINDS[type(spec)]


def unknown_in(config: KVCacheConfig) -> str:
    """Return which layers are of a kind that is not known here, or an empty text."""
    found = [*map(_strange_role, config.kv_cache_groups), *map(_strange, _specs_in(config))]
    strange = ", ".join(dict.fromkeys(filter(None, found)))
    if not strange:
        return ""
    return f"the KV cache has layers of a kind that Caesura does not know: {strange}"


def _strange(spec: KVCacheSpec) -> str:
    """Return what is not known of a layer, or an empty text."""
    name = type(spec).__name__
    if type(spec) not in KINDS:
        return name
    if isinstance(spec, MambaSpec) and spec.mamba_cache_mode not in STATE_MODES:
        return f"{name} with the cache mode {spec.mamba_cache_mode!r}"
    if isinstance(spec, FullAttentionSpec) and spec.non_causal:
        return f"{name} that sees later tokens"
    if not spec.prefix_cacheable:
        return f"{name} that the prefix cache leaves out"
    return ""


def _strange_role(group: KVCacheGroupSpec) -> str:
    """Return what is not known of the place of a group's blocks, or an empty text."""
    if group.host_resident:
        return "a group in main memory"
    return "" if group.role is KVCacheGroupRole.DEFAULT else f"a group as {group.role.value}"


def has_recurrent_state(config: KVCacheConfig) -> bool:
    """Return whether any layer keeps one state of all tokens, as Mamba and linear attention do.

    A step overwrites such a state, while other layers write the KV of each token to its own place.
    """
    return any(isinstance(spec, MambaSpec) for spec in _specs_in(config))


def _specs_in(config: KVCacheConfig) -> Iterator[KVCacheSpec]:
    """Yield the specs of all groups' layers."""
    for group in config.kv_cache_groups:
        yield from iter_layer_specs(group.kv_cache_spec)
