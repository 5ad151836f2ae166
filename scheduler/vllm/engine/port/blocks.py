"""Blocks of KV cache, their references, and the number of free blocks."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from vllm.utils.math_utils import cdiv
from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import KVCacheBlock
from vllm.v1.core.single_type_kv_cache_manager import SingleTypeKVCacheManager
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    KVCacheConfig,
    MambaSpec,
    SlidingWindowSpec,
    is_full_attention_spec,
    iter_layer_specs,
)
from vllm.v1.request import Request

from caesura.intercept.kv.views import Groups

Block: TypeAlias = KVCacheBlock
"""One block on the device. Code outside this folder only passes it on."""


class Place(NamedTuple):
    """Where a request has a block: the index of its group, and its ordinal in the group's row.

    The block holds what the group keeps of the request's tokens up to `end`, but for what earlier
    blocks of the row hold.
    """

    group: int
    ordinal: int
    end: int


class Blocks:
    """The blocks of one engine's pool. A block without references is free."""

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool
        self.total: int = pool.num_gpu_blocks - 1
        """Number of blocks that requests can use, without the pool's null block."""

    def free(self) -> int:
        """Return how many blocks have no references."""
        return int(self._pool.get_num_free_blocks())

    def hashed(self) -> int:
        """Return how many blocks the prefix cache can find, free or in use."""
        return len(self._pool.cached_block_hash_to_block)

    def reference(self, blocks: Sequence[Block]) -> None:
        """Add a reference to each block, so that none of them is reused."""
        self._pool.touch(blocks)

    def release(self, blocks: Sequence[Block]) -> None:
        """Drop a reference to each block; the last of them is reused first."""
        self._pool.free_blocks(reversed(blocks))


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How many tokens of a request the prefix cache had when it was searched for them.

    `found` are the blocks of windows and states among what it has, with their hashes. The request
    itself may have given them up, so that others may have taken them since.
    """

    tokens: int = 0
    found: tuple[tuple[Block, Any], ...] = ()

    def stands(self) -> bool:
        """Return whether the cache has it still, while the request holds its attention's blocks."""
        return all(block.block_hash == known for block, known in self.found)


class PrefixCache:
    """The prefix cache of one engine, searched for what a request would find if it came now."""

    def __init__(self, manager: KVCacheManager, config: KVCacheConfig) -> None:
        self._manager = manager
        specs = [group.kv_cache_spec for group in config.kv_cache_groups]
        self._passing = [not is_full_attention_spec(spec) for spec in specs]
        """By group, whether a request gives up blocks behind which it has gone on."""
        self._sparse = [
            one
            for one in manager.coordinator.single_type_managers
            if manager.enable_caching
            and config.prefix_cache_retention_interval == 0
            and isinstance(one.kv_cache_spec, SlidingWindowSpec)
            and type(one).cache_blocks is SingleTypeKVCacheManager.cache_blocks
        ]
        """The groups with windows of which vLLM caches only what ends at the end of a prompt."""

    def decoded(self, request: Request) -> None:
        """Cache what windows have seen of a request's answer, as full attention's blocks are.

        vLLM expects the same prompt again. A conversation goes on behind the answer, and cannot
        unless the cache has all that windows see there.
        """
        for manager in self._sparse:
            name, size = request.request_id, manager.block_size
            row = manager.req_to_blocks.get(name, [])  # one that was preempted has none
            known = manager.num_cached_block.get(name, 0)
            settled = request.num_computed_tokens - request.num_output_placeholders
            full = min(min(settled, request.num_tokens - 1) // size, len(row), known)
            first = full
            # A block that ends with the prompt serves requests that go on, and no repeat.
            while first and first * size >= request.num_prompt_tokens:
                if is_hashed(row[first - 1]) or row[first - 1].is_null:
                    break
                first -= 1
            if first < full:
                self._manager.block_pool.cache_full_blocks(
                    request=request,
                    blocks=row,
                    num_cached_blocks=first,
                    num_full_blocks=full,
                    block_size=size,
                    kv_cache_group_id=manager.kv_cache_group_id,
                )

    def search(self, request: Request, tokens: int) -> Checkpoint:
        """Return the last place in the first `tokens` tokens that every group can go on from.

        A recurrent layer goes on from a state at a block's end, a window from where the cache has
        all that it sees, and full attention from its last block. It takes O(blocks of the request).
        """
        manager = self._manager
        if not manager.enable_caching or request.skip_reading_prefix_cache:
            return Checkpoint()
        rows, hit, *_ = manager.coordinator.find_longest_cache_hit(request.block_hashes, tokens)
        passing = [row for row, passes in zip(rows, self._passing, strict=True) if passes]
        found = [(block, block.block_hash) for row in passing for block in row if not block.is_null]
        return Checkpoint(hit, tuple(found))


def ids_of(blocks: Sequence[Block]) -> list[int]:
    """Return the ids of the blocks, as a worker knows them."""
    return [block.block_id for block in blocks]


def referenced_once(block: Block) -> bool:
    """Return whether one more release would free the block."""
    return bool(block.ref_cnt == 1 and not block.is_null)


def is_hashed(block: Block) -> bool:
    """Return whether the prefix cache knows the block by its content."""
    return block.block_hash is not None


def owned_alone(blocks: Sequence[Block]) -> int:
    """Return how many of the blocks have one reference, null blocks left out."""
    return sum(block.ref_cnt == 1 and not block.is_null for block in blocks)


def findable_prefix(blocks: Sequence[Block], most: int) -> int:
    """Return how many of the `most` first blocks end with one that the prefix cache can find."""
    while most and (blocks[most - 1].block_hash is None or blocks[most - 1].is_null):
        most -= 1
    return most


def real_ids(blocks: Sequence[Block]) -> set[int]:
    """Return the ids of the blocks, null blocks left out."""
    return {block.block_id for block in blocks if not block.is_null}


def groups_of(config: KVCacheConfig) -> Groups:
    """Return how the blocks of a request divide among the groups, for prices."""
    growing, states, windows = 0, 0, []
    for group in config.kv_cache_groups:
        spec = next(iter(iter_layer_specs(group.kv_cache_spec)))
        if isinstance(spec, MambaSpec):
            states += 1
        elif isinstance(spec, SlidingWindowSpec):
            windows.append(-(-spec.sliding_window // spec.block_size))
        elif isinstance(spec, ChunkedLocalAttentionSpec):
            windows.append(-(-spec.attention_chunk_size // spec.block_size))
        else:
            growing += 1
    return Groups(growing, tuple(windows), states)


def attention_tokens(config: KVCacheConfig, block_size: int) -> int:
    """Return the tokens in a block of full attention.

    With several groups, the scheduler's `block_size` is a common multiple of all groups' sizes.
    Without prefix caching a recurrent group has one block for the longest context.
    """
    if len(config.kv_cache_groups) == 1:
        return block_size
    specs = [group.kv_cache_spec for group in config.kv_cache_groups]
    sizes = [spec.block_size for spec in specs if is_full_attention_spec(spec)]
    return min(sizes, default=block_size)


class BlockSizes:
    """The tokens of a block in each group, and the blocks that a request has for drafts besides.

    A group with a recurrent state has those.
    """

    def __init__(self, config: KVCacheConfig, workers: int) -> None:
        sizes = (tensor.size for tensor in config.kv_cache_tensors)
        self.block_bytes = max(sizes, default=0) // config.num_blocks * workers
        """Bytes of a block of the pool, whichever group has it, as if all workers had equal shares;
        0 where no memory is planned."""
        specs = [group.kv_cache_spec for group in config.kv_cache_groups]
        self._sizes: list[int] = [spec.block_size for spec in specs]
        self._drafts = sum(getattr(spec, "num_speculative_blocks", 0) for spec in specs)

    def most(self, tokens: int) -> int:
        """Return how many blocks that many new tokens take at most, from a block's begin on."""
        return sum([cdiv(tokens, size) for size in self._sizes]) + self._drafts

    def partly_filled(self, tokens: int) -> int:
        """Return how many of the last blocks of a context, one in each group, are not full."""
        return sum([tokens % size > 0 for size in self._sizes])


@contextmanager
def checkpoints_kept(managers: Iterable[SingleTypeKVCacheManager]) -> Iterator[None]:
    """Undo what vLLM notes of a chunk when it is asked for the blocks of that chunk.

    If the chunk is not scheduled, a state would get the hash of other tokens.
    """
    noted: list[dict[str, Any]] = [vars(one).get("_checkpoints", {}) for one in managers]
    kept = [(notes, dict(notes)) for notes in noted]
    try:
        yield
    finally:
        for notes, before in kept:
            notes.clear()
            notes.update(before)


def places_of(
    managers: Sequence[SingleTypeKVCacheManager],
    rows: Sequence[Sequence[Block]],
    tokens: int,
) -> list[Place]:
    """Return the places of all blocks that a request needs to go on behind `tokens` tokens.

    A window needs those that it reaches, and a recurrent group the one with its state. `rows` are
    the request's blocks by group. The list is empty if the request lacks one of them.
    """
    places: list[Place] = []
    for group, (manager, row) in enumerate(zip(managers, rows, strict=True)):
        size = manager.block_size
        first = max(0, manager.get_num_skipped_tokens(tokens)) // size
        for ordinal in range(first, -(-tokens // size)):
            if ordinal >= len(row) or row[ordinal].is_null:
                return []
            places.append(Place(group, ordinal, min((ordinal + 1) * size, tokens)))
    return places
