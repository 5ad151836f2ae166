"""How many tokens a follow-up computes, on tiny models: for docs/reference/model-families.md.

    python -m tests.engine.follow_up_counts            # prints the table of that page
    python -m tests.engine.follow_up_counts --write    # puts it there

A client runs its tools: each request ends with a call, and the next one extends it by a result.
Both engines cache prefixes where vLLM's CPU build can, and schedule a step ahead, as on GPUs.
Nobody else is in the engine, so that this is what a follow-up computes at best.
"""

import argparse
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.progress import track
from tokenizers import Tokenizer
from vllm.sampling_params import StructuredOutputsParams

from caesura.runtime.launch import BUNDLED_MODEL

from .alike import AsyncChunkRecorder, StockChunkRecorder
from .core import Core, streams_of_cpu
from .families import FAMILIES, VOCABULARY, model_of

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "model-families.md"
BEGIN, END = "<!-- begin follow-ups -->", "<!-- end follow-ups -->"
COLUMNS = ("family", "block", "new", "Caesura", "stock vLLM")

CALL = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
TOKENIZER = Tokenizer.from_file(str(Path(BUNDLED_MODEL, "tokenizer.json")))
STOP = TOKENIZER.token_to_id("<|im_end|>")
PROMPT, RESULT, TURNS = 1500, 60, 3


def forced(text: str) -> dict[str, Any]:
    """Return the sampling parameters of one text, in the tokens that a tokenizer gives it.

    A grammar alone leaves the tokens to the model, whose choice differs from machine to machine.
    """
    grammar = StructuredOutputsParams(grammar=f"root ::= {json.dumps(text)}")
    grammar._backend = "xgrammar"  # as vLLM's input processor chooses
    tokens = TOKENIZER.encode(text, add_special_tokens=False).ids
    return {"structured_outputs": grammar, "logit_bias": dict.fromkeys(tokens, 100.0)}


def computed(name: str, scheduler: type) -> tuple[str, str]:
    """Return the tokens of a block, and those that each follow-up of a chat computes."""
    family, rng, counts = FAMILIES[name], random.Random(1), []
    with streams_of_cpu():
        core = Core(
            model=model_of(name),
            asynchronous=True,
            dtype=family.dtype,
            scheduler_cls=scheduler,
            enable_prefix_caching=family.caches_prefixes,
            max_model_len=4096,
            max_num_batched_tokens=4096,
            kv_cache_memory_bytes=256 << 20,
            compilation_config={"custom_ops": ["-rotary_embedding"]},
            additional_config={"caesura": {"formats": ["hermes"]}},
        )
        tokens = [rng.randrange(8, VOCABULARY) for _ in range(PROMPT)]
        for turn in range(TURNS + 1):
            core.add(str(turn), tokens, 200, STOP, **forced(CALL))
            core.run([str(turn)])
            core.idle(2)
            assert core.said[str(turn)] == [*TOKENIZER.encode(CALL).ids, STOP]
            if turn:
                counts.append(len(tokens) - core.scheduler.starts[str(turn)])
            tokens += core.said[str(turn)]
            tokens += [rng.randrange(8, VOCABULARY) for _ in range(RESULT)]
        block, cached = core.scheduler.block_size, core.config.cache_config.enable_prefix_caching
        core.close()
    told = ", ".join(f"{count:,}" for count in counts)
    return f"{block:,}", told if cached else f"{told} (without a prefix cache)"


def row(name: str) -> list[str]:
    """Return the cells of a family."""
    block, ours = computed(name, AsyncChunkRecorder)
    _, stock = computed(name, StockChunkRecorder)
    return [name, block, str(RESULT), ours, stock]


def lines_of(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the table in Markdown."""
    return [f"| {' | '.join(each)} |" for each in [COLUMNS, ["---"] * len(COLUMNS), *rows]]


def main() -> None:
    """Measure, print the table, and write it if asked to."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.engine.follow_up_counts",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--write", action="store_true", help=f"put the table into {PAGE.name}")
    write = parser.parse_args().write
    names = [name for name, family in FAMILIES.items() if family.runs_here]
    lines = lines_of([row(name) for name in track(names, "families")])
    print("\n".join(lines))
    if write:
        page = PAGE.read_text()
        before, rest = page.split(BEGIN)
        _, after = rest.split(END)
        PAGE.write_text("\n".join([before + BEGIN, *lines, END + after]))


if __name__ == "__main__":
    main()
