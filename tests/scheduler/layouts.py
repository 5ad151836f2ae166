"""Layouts of KV caches: the groups of layers that vLLM makes of a model, and what they hold.

Each group is one layer here. The fake runner's layers check what they read: attention the token and
the position that were written to each slot it sees, a recurrent layer that its state is that of
just the tokens before.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pytest
import torch
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    KVCacheGroupSpec,
    KVCacheSpec,
    MambaSpec,
    MLAAttentionSpec,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
)

LAYOUTS = (
    "full",
    "mla",
    "window",
    "window+full",
    "window+window+full",
    "chunk+full",
    "state",
    "state+full",
    "state+state+mla",
    "state+window+full",
    "mla-window+mla",
)
"""The groups of Llama, DeepSeek V3, Mistral, gpt-oss, Gemma 3, Llama 4, Mamba, Qwen3-Next, Kimi
Linear, of a model that has them all, and of DeepSeek V4."""

UNKNOWN = ("invented", "window+invented", "invented-state", "invented-state+full")
"""Layouts with kinds that Caesura does not know. Who kept their KV would do well here, by chance.
"""


@dataclass(frozen=True, kw_only=True)
class InventedSpec(FullAttentionSpec):
    """A kind of attention that is made up."""


@dataclass(frozen=True)
class InventedStateSpec(MambaSpec):
    """A kind of state that is made up."""


FAST = (("window+full", True), ("state+full", False), ("state+window+full", True))


def is_recurrent(layout: str) -> bool:
    """Whether a layout has recurrent state."""
    return "state" in layout


def block_sizes(layout: str, block_size: int, cached: bool, most_tokens: int) -> tuple[int, int]:
    """Return the size of attention's blocks and that of a state's, as vLLM configures them.

    Without prefix caching a request has one state, in a block that is as long as any request.
    """
    of_state = block_size if cached else most_tokens
    return (of_state if layout in ("state", "invented-state") else block_size), of_state


def groups_of(
    layout: str, sizes: tuple[int, int], window: int, cached: bool, drafts: int
) -> list[KVCacheGroupSpec]:
    """Return a layout's groups. `window` is that of windows.

    Chunks are the next multiple of a block: vLLM's lookup in the prefix cache takes that for
    granted, and gives the null block for tokens that are seen else.
    """
    of_attention, of_state = sizes
    shape: Any = {"block_size": of_attention, "num_kv_heads": 1, "head_size": 1}
    shape["dtype"] = torch.float32

    def spec(kind: str) -> KVCacheSpec:
        match kind:
            case "full":
                return FullAttentionSpec(**shape)
            case "invented":
                return InventedSpec(**shape)
            case "mla-window":
                return SlidingWindowMLASpec(**shape, sliding_window=window)
            case "mla":
                return MLAAttentionSpec(**shape)
            case "window":
                return SlidingWindowSpec(**shape, sliding_window=window)
            case "chunk":
                chunk = -(-window // of_attention) * of_attention
                return ChunkedLocalAttentionSpec(**shape, attention_chunk_size=chunk)
            case "state" | "invented-state":
                made = MambaSpec if kind == "state" else InventedStateSpec
                return made(
                    block_size=of_state,
                    shapes=((1, 1),),
                    dtypes=(torch.float32,),
                    mamba_cache_mode="align" if cached else "none",
                    num_speculative_blocks=drafts,
                )
        raise ValueError(f"unknown kind of group: {kind!r}")

    kinds = layout.split("+")
    return [KVCacheGroupSpec([f"{kind}-{at}"], spec(kind)) for at, kind in enumerate(kinds)]


def room(layout: str, blocks: int, cached: bool, drafts: int = 0, ahead: int = 0) -> int:
    """Return how many blocks a pool needs that would have `blocks` with full attention alone.

    A window needs as many for a prompt that is computed in one step. A request has a state or two,
    of its own or in the prefix cache, and one more for each draft and for each step `ahead`: vLLM
    frees a state when the step is over that goes on from it. With fewer it preempts the request
    itself in the middle of its prompt, and two such requests take turns for ever.
    """
    states = max(2 + drafts + ahead, blocks // 6 if cached else blocks // 12)
    return sum(states if is_recurrent(kind) else blocks + 1 for kind in layout.split("+"))


def over_layouts(make: Callable[..., Any]) -> list[Any]:
    """Return parameters that do what `make` does, with each layout under the same pressure.

    Some stand for all where there is little time.
    """

    def made(layout: str, cached: bool) -> Callable[..., Any]:
        def build(*args: Any, blocks: int = 100, **options: Any) -> Any:
            given = {"layout": layout, "prefix_caching": cached, **options}
            return make(*args, blocks=room(layout, blocks, cached), **given)

        return build

    return [
        pytest.param(
            made(layout, cached),
            id=f"{layout}-{'cached' if cached else 'uncached'}",
            marks=[] if (layout, cached) in FAST else [pytest.mark.slow],
        )
        for layout in LAYOUTS[1:]
        for cached in (True, False)
    ]


Content: TypeAlias = dict[int, int] | tuple[int, int, int]
"""What is in a block: KV by offset, or a state."""


@dataclass
class Memory:
    """The KV memory of a device, by block and offset; a block may hold a state instead.

    All groups share its blocks. What one group has written is lost when another writes there.
    """

    block_size: int
    slots: dict[tuple[int, int], int] = field(default_factory=dict)
    states: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    """By block: the group, the number of tokens applied, and the hash of them all."""

    def clear(self) -> None:
        """Lose everything."""
        self.slots.clear()
        self.states.clear()

    def read(self, block: int) -> Content:
        """Return what is in a block: by offset, or a state."""
        if block in self.states:
            return self.states[block]
        kept = {at: self.slots.get((block, at)) for at in range(self.block_size)}
        return {at: content for at, content in kept.items() if content is not None}

    def write(self, block: int, content: Content) -> None:
        """Let a block hold just that."""
        self.overwrite(block)
        if isinstance(content, tuple):
            self.states[block] = content
        else:
            self.slots.update({(block, at): one for at, one in content.items()})

    def overwrite(self, block: int) -> None:
        """Lose what is in a block."""
        self.states.pop(block, None)
        for offset in range(self.block_size):
            self.slots.pop((block, offset), None)


class Attention:
    """A layer of attention, which sees all tokens or the last ones."""

    def __init__(self, at: int, spec: Any, memory: Memory) -> None:
        self._at = at
        self._block_size: int = spec.block_size
        self._window: int | None = getattr(spec, "sliding_window", None)
        self._chunk: int | None = getattr(spec, "attention_chunk_size", None)
        self._memory = memory

    def _first(self, position: int) -> int:
        """Return the first position that the one at `position` sees."""
        if self._chunk is not None:
            return position // self._chunk * self._chunk
        return 0 if self._window is None else max(0, position + 1 - self._window)

    def compute(self, blocks: Sequence[int], hashes: Sequence[int], start: int, who: str) -> None:
        """Write the KV from `start` on, and read all that these positions see.

        `hashes` are those of the prefixes of the request's tokens.
        """
        size, slots, states = self._block_size, self._memory.slots, self._memory.states
        for position in range(self._first(start), len(hashes)):
            block, content = blocks[position // size], hashes[position] ^ self._at
            slot = (block, position % size)
            if position >= start:
                assert block, f"{who}: the KV at position {position} has no block"
                states.pop(block, None)
                slots[slot] = content
            assert slots.get(slot) == content, (
                f"{who}: the KV at position {position} is not its own, in group {self._at}"
            )

    def finish(
        self, blocks: Sequence[int], hashes: Sequence[int], ends: Sequence[int], who: str
    ) -> None:
        """Nothing is left to do when it is known which drafts count."""

    def forget(self, who: str) -> None:
        """Nothing is remembered of a request."""


class Recurrent:
    """A layer with one state of all tokens, which each step overwrites.

    With prefix caching the state of a step is left in the block of its last token. The runner
    remembers, as vLLM's first one does, in which of a request's blocks it was last. With drafts the
    states after each of them are kept until it is known which count; here the others are not made.
    """

    def __init__(self, at: int, spec: Any, memory: Memory) -> None:
        self._at = at
        self._block_size = spec.block_size
        self._aligned = spec.mamba_cache_mode == "align"
        self._memory = memory
        self._places: dict[str, int] = {}

    def compute(self, blocks: Sequence[int], hashes: Sequence[int], start: int, who: str) -> None:
        """Read the state after the tokens before `start`, which must be that of just those."""
        place = self._places.get(who, self._place_of(start))
        if place >= 0:
            state = self._memory.states.get(blocks[place])
            expected = (self._at, start, hashes[start - 1]) if start else None
            assert state == expected, (
                f"{who}: the state of group {self._at} is that of other tokens: {state}, and not"
                f" {expected}"
            )

    def finish(
        self, blocks: Sequence[int], hashes: Sequence[int], ends: Sequence[int], who: str
    ) -> None:
        """Leave the states after these numbers of tokens, the last of which is where it goes on.

        Of the others, those at the ends of blocks are kept.
        """
        *between, end = ends
        for reached in [*(one for one in between if one % self._block_size == 0), end]:
            block = blocks[self._place_of(reached)]
            assert block, f"{who}: the state has no block"
            if block not in self._memory.states:
                self._memory.overwrite(block)
            self._memory.states[block] = (self._at, reached, hashes[reached - 1])
        self._places[who] = self._place_of(end)

    def forget(self, who: str) -> None:
        """Forget where a request's state was."""
        self._places.pop(who, None)

    def _place_of(self, tokens: int) -> int:
        """Return which of a request's blocks has its state after so many tokens; -1 for none."""
        return (tokens - 1) // self._block_size if self._aligned else min(tokens, 1) - 1


def layers_of(groups: Iterable[KVCacheGroupSpec], memory: Memory) -> list[Attention | Recurrent]:
    """Return the layers of a fake model, one a group."""
    layers: list[Attention | Recurrent] = []
    for at, group in enumerate(groups):
        spec = group.kv_cache_spec
        made = Recurrent if isinstance(spec, MambaSpec) else Attention
        layers.append(made(at, spec, memory))
    return layers
