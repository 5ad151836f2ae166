"""vLLM's CPU kernel of rotary embeddings reads queries of shape (tokens, heads, size) wrongly.

Needs vLLM's CPU build alone: `python docs/reference/vllm_cpu_rotary.py`.
"""

import torch

TOKENS, HEADS, SIZE = 8, 4, 32


def rotated(shape: tuple[int, ...]) -> torch.Tensor:
    """Return the same queries, rotated by vLLM's kernel in this shape."""
    torch.manual_seed(0)
    query = torch.randn(TOKENS, HEADS * SIZE).view(shape)
    key = query.clone()
    angles = torch.arange(TOKENS)[:, None] * 10000 ** (-torch.arange(0, SIZE, 2) / SIZE)
    table = torch.cat([angles.cos(), angles.sin()], dim=-1)
    torch.ops._C.rotary_embedding(torch.arange(TOKENS), query, key, SIZE, table, True)
    return query.view(TOKENS, HEADS, SIZE)


def main() -> None:
    """Print which tokens differ between the two shapes of the same queries."""
    from vllm.platforms import current_platform

    current_platform.import_kernels()
    flat, by_head = rotated((TOKENS, HEADS * SIZE)), rotated((TOKENS, HEADS, SIZE))
    wrong = [at for at in range(TOKENS) if not torch.allclose(flat[at], by_head[at], atol=1e-5)]
    print(f"of {TOKENS} tokens these are WRONG: {wrong}" if wrong else "right")


if __name__ == "__main__":
    main()
