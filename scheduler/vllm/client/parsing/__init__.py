"""Parsers from a turn's streamed text to events, by vLLM's own tool parsers for most formats.

vLLM's parsers know the dialects of the model families. They do not report when a call is complete,
nor what a malformed call was. So the begin and end of a call are found by the markers that the
scheduler watches too. vLLM's streaming parser announces calls and arguments as they arrive, and
its whole-text parser decides about each call. Formats with tags around bare text are parsed here:
vLLM's parsers take quadratic time for them, and accept calls with truncated values. A format
without a row is parsed by vLLM's whole-text parser alone, once the turn has ended.
"""

import logging
from collections.abc import Sequence
from typing import Any

from caesura.intercept.calls.formats import BY_PARSER, HARMONY, CallFormat, resolve
from caesura.intercept.calls.mentions import plain_openers
from caesura.intercept.calls.vocabulary import Vocabulary
from caesura.scheduler.messages import ToolSpec
from caesura.scheduler.vllm.client.parsing.calls import TurnParser, new_call_id
from caesura.scheduler.vllm.client.parsing.reading import Announcer, CallReader
from caesura.scheduler.vllm.client.parsing.regions import RegionTurn
from caesura.scheduler.vllm.client.parsing.tagged import TAGS, TaggedCalls
from caesura.scheduler.vllm.client.parsing.whole import EndedTurn, HarmonyTurn, WholeTurn

__all__ = ["TurnParser", "channel_parser", "new_call_id", "quiet_parsers", "turn_parser"]


def quiet_parsers() -> None:
    """Switch off vLLM's log lines about malformed calls, which are reported to the model."""
    for name in ("vllm.tool_parsers", "vllm.parser"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def turn_parser(
    form: CallFormat,
    tokenizer: Any,
    tools: Sequence[ToolSpec],
    vocabulary: Vocabulary | None = None,
) -> TurnParser:
    """Return a parser for one turn; `form` must be one whose calls end with the turn.

    `vocabulary` tells which openers are plain text, and count as mentions in code; without it none
    does.
    Raises `ValueError` if vLLM's parser refuses the model.
    """
    if form is HARMONY:
        return HarmonyTurn(tokenizer)
    if form.name.startswith(BY_PARSER):
        return EndedTurn(form, tokenizer, tools)
    names = [tool["function"]["name"] for tool in tools]
    if form.name in TAGS:
        forms = resolve([form.name], names)
        plain = plain_openers(forms, vocabulary) if vocabulary is not None else ()
        return RegionTurn(forms, lambda: TaggedCalls(TAGS[form.name], tools), plain)
    reader = CallReader(form, tokenizer)
    if form.opens:
        plain = plain_openers([form], vocabulary) if vocabulary is not None else ()
        return RegionTurn([form], lambda: Announcer(form, reader), plain)
    return WholeTurn(form, reader, names)


def channel_parser(form: CallFormat, tokenizer: Any) -> TurnParser | None:
    """Return a parser for a turn in which calls are not read, or None where no text is hidden."""
    return HarmonyTurn(tokenizer, reads_calls=False) if form is HARMONY else None
