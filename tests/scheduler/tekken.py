"""A small tokenizer of Mistral's kind, cut from one that mistral-common brings along."""

import json
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

SPECIAL = [
    *("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
    *("[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]"),
    *("[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
    *("[TOOL_CONTENT]",),
]
NEW_SPECIAL = {11: ["[CALL_ID]", "[ARGS]"], 13: ["[CALL_ID]", "[ARGS]", "[THINK]", "[/THINK]"]}
WORDS = 1000


@cache
def _whole() -> dict[str, Any]:
    data = files("mistral_common").joinpath("data", "tekken_240911.json")
    read: dict[str, Any] = json.loads(data.read_text())
    return read


def write_tekken(directory: Path, version: int) -> Path:
    """Write `tekken.json` of a version with the first words of Mistral's; return the directory."""
    special = [*SPECIAL, *NEW_SPECIAL.get(version, [])]
    whole = _whole()
    config = {
        **whole["config"],
        "default_vocab_size": len(special) + WORDS,
        "default_num_special_tokens": len(special),
        "version": f"v{version}",
    }
    tokens = [
        {"rank": rank, "token_str": text, "is_control": True} for rank, text in enumerate(special)
    ]
    data = {"config": config, "vocab": whole["vocab"][:WORDS], "special_tokens": tokens}
    directory.joinpath("tekken.json").write_text(json.dumps(data))
    return directory
