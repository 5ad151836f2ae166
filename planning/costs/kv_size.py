"""How large an engine's KV cache is, as far as the flags of `vllm serve` say it."""

from collections.abc import Sequence
from dataclasses import dataclass

BYTES_FLAG = "--kv-cache-memory-bytes"
BLOCKS_FLAG = "--num-gpu-blocks-override"
BLOCK_FLAG = "--block-size"
SHARE_FLAGS = ("--gpu-memory-utilization", "--device-memory-utilization")
FLAGS = (BYTES_FLAG, BLOCKS_FLAG, BLOCK_FLAG, *SHARE_FLAGS)

UTILIZATION = 0.92
"""vLLM's default share of a device's memory."""

MULTIPLES = {
    **{letter: 1000.0**power for power, letter in enumerate("kmgt", 1)},
    **{letter: 1024.0**power for power, letter in enumerate("KMGT", 1)},
}
"""How vLLM reads sizes: 4g is 4 * 1000^3, and 4G is 4 * 1024^3."""


@dataclass(frozen=True, slots=True)
class KvSize:
    """The flags of one engine; 0: not given.

    `memory_bytes` are those of the KV cache on each device, and `blocks` its blocks of
    `block_tokens`. `utilization` is the share of a device's memory for weights, KV cache and all
    else.
    """

    memory_bytes: int = 0
    blocks: int = 0
    block_tokens: int = 0
    utilization: float = 0.0

    def on_device(self, kv_bytes: int, block_tokens: int) -> int:
        """Return the bytes of the KV cache on each device; 0 if the flags leave it open.

        `kv_bytes` are those of a token, and `block_tokens` the tokens of a block by default. As in
        vLLM, a number of blocks goes before a number of bytes.
        """
        if self.blocks:
            return self.blocks * (self.block_tokens or block_tokens) * kv_bytes
        return self.memory_bytes


def kv_size(arguments: Sequence[str]) -> KvSize:
    """Return what arguments of `vllm serve` say; vLLM itself refuses those that are wrong."""
    given = dict(_options(arguments))
    shares = [given[flag] for flag in SHARE_FLAGS if flag in given]
    return KvSize(
        memory_bytes=int(_number(given.get(BYTES_FLAG, ""))),
        blocks=int(_number(given.get(BLOCKS_FLAG, ""))),
        block_tokens=int(_number(given.get(BLOCK_FLAG, ""))),
        utilization=_number(shares[-1]) if shares else 0.0,
    )


def kv_arguments(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return those of the arguments that size the KV cache, as `--flag=value`."""
    return tuple(f"{flag}={value}" for flag, value in _options(arguments))


def _options(arguments: Sequence[str]) -> list[tuple[str, str]]:
    """Return the flags that size the KV cache, with their values in the order given."""
    found = []
    for place, argument in enumerate(arguments):
        flag, equals, value = argument.partition("=")
        flag = flag.replace("_", "-")
        if flag in FLAGS:
            following = next(iter(arguments[place + 1 : place + 2]), "")
            found.append((flag, value if equals else following))
    return found


def _number(text: str) -> float:
    """Return a number as vLLM reads it; 0 for none."""
    text = text.strip()
    times = MULTIPLES.get(text[-1:], 0.0)
    try:
        return max(0.0, float(text[:-1] if times else text) * (times or 1.0))
    except ValueError:
        return 0.0
