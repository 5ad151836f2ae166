"""What a request has that this server leaves out, told in the log and in the answer.

New releases of clients send new fields. A field that is known to change the answer, and that this
server cannot honour, is refused by name. A field that nobody knows here is left out with a note:
`caesura.left_out` of the answer names it, and the log says it once.
"""

import logging
from collections.abc import Collection, Mapping
from typing import Any

from caesura.runtime.server.http.errors import invalid

LOG = logging.getLogger(__name__)
MAX_SAID = 1_024
"""The most things that the log names: clients choose the names of fields."""
MAX_SHOWN_CHARACTERS = 64
UNSUPPORTED = frozenset(
    {
        *("add_special_tokens", "allowed_token_ids", "chat_template", "documents", "echo"),
        *("ec_transfer_params", "ignore_eos", "include_stop_str_in_output", "kv_transfer_params"),
        *("length_penalty", "logprob_token_ids", "media_io_kwargs", "mm_payload"),
        *("mm_processor_kwargs", "prompt_logprobs", "repetition_detection", "return_mm_kwargs"),
        *("return_prompt_text", "return_token_ids", "return_token_offsets"),
        *("return_tokens_as_token_ids", "routed_experts_prompt_start", "skip_special_tokens"),
        *("spaces_between_special_tokens", "thinking_token_budget", "truncate_prompt_tokens"),
        *("truncation_side", "use_beam_search", "vllm_xargs", "watermarking"),
        # Names of earlier releases, which vLLM's server leaves out in silence today.
        *("best_of", "guided_choice", "guided_decoding_backend", "guided_grammar", "guided_json"),
        *("guided_regex", "guided_whitespace_pattern"),
    }
)
"""Fields of vLLM's that change the prompt or the answer, and that only its own server honours."""
_said: set[str] = set()


def left_out_of(
    extra: Mapping[str, Any] | None,
    *,
    harmless: Collection[str],
    neutral: Mapping[str, tuple[object, ...]],
    refused: Collection[str],
) -> list[str]:
    """Return a note for each of the `extra` fields of a request that is left out.

    `harmless` fields change nothing and need no note, nor do `neutral` ones with a value that
    changes nothing; null never does. Raises `ApiError` for a field that is `refused`, and for a
    neutral one with another value.
    """
    notes = []
    for name, value in (extra or {}).items():
        if name in harmless or value is None or value in neutral.get(name, ()):
            continue
        shown = name[:MAX_SHOWN_CHARACTERS]
        if name in neutral or name in refused:
            raise invalid(f"{shown} is not supported here: leave the field out.", shown)
        notes.append(f"field {shown}")
    return notes


def say_once(notes: Collection[str]) -> None:
    """Log what a request has that is left out, unless that was logged before."""
    for note in notes:
        if note in _said or len(_said) >= MAX_SAID:
            continue
        _said.add(note)
        LOG.warning(
            "a request has the %s, which cannot be used here: it is left out, here and in further"
            " requests, and named under `caesura.left_out` of each answer",
            note,
        )


def with_notes(extension: dict[str, Any] | None, notes: Collection[str]) -> dict[str, Any] | None:
    """Return the field `caesura` of an answer: what the server's tools did, and the notes."""
    if not notes:
        return extension
    return {**(extension or {}), "left_out": list(notes)}
