"""Reading a model's files for how it writes calls and thinking, without an engine."""

import json
import re
from pathlib import Path
from typing import Any

from vllm.reasoning import ReasoningParserManager
from vllm.tokenizers import get_tokenizer
from vllm.utils.mistral import is_mistral_tokenizer

from caesura.intercept.calls.formats import turn_format
from caesura.intercept.calls.thinking import REGIONS
from caesura.scheduler.errors import UsageError
from caesura.scheduler.model_facts import ModelFacts
from caesura.scheduler.vllm.client.parsing import turn_parser
from caesura.scheduler.vllm.client.parsing.names import named_formats
from caesura.scheduler.vllm.tokenizer import (
    check_vocabulary,
    format_names,
    template_of,
    thinking_regions,
    vocabulary_from,
)


def facts_of_model(model: str, formats: tuple[str, ...] | None) -> ModelFacts:
    """Return what the model's tokenizer, template and configuration tell.

    `formats` are those that a user has named. Raises `UsageError` for a model without a readable
    tokenizer and for unknown formats.
    """
    try:
        tokenizer: Any = get_tokenizer(model)
    except Exception as error:  # transformers raises many classes of errors for broken files
        raise UsageError(f"the tokenizer of {model} cannot be read: {error}") from error
    template = template_of(tokenizer)
    known = format_names(tokenizer, template) if formats is None else named_formats(formats)
    openers = thinking_regions(tokenizer, template, known, "")
    return ModelFacts(
        formats=known,
        detected=formats is None,
        problem=_problem(tokenizer, known),
        regions=tuple(f"{opener} ... {REGIONS[opener]}" for opener in openers),
        reasoning_parser=_like(_names_of(model)),
        template_characters=len(template) if template else None,
        renders_itself=is_mistral_tokenizer(tokenizer),
    )


def _problem(tokenizer: Any, formats: tuple[str, ...]) -> str:
    """Return why calls in these formats cannot be read for the model, or an empty text."""
    form = turn_format(formats)
    try:
        if form is not None:
            turn_parser(form, tokenizer, ())
        check_vocabulary(tokenizer, vocabulary_from(tokenizer))
    except ValueError as error:
        return str(error)
    return ""


def _names_of(model: str) -> list[str]:
    """Return the model's type, and the name of its directory or repository."""
    names = [Path(model).name]
    try:
        config = json.loads(Path(model, "config.json").read_text())
        names.insert(0, str(config.get("model_type", "")))
    except (OSError, ValueError, AttributeError):
        pass  # a repository that is not on this machine, or a directory without one
    return names


def _like(names: list[str]) -> str:
    """Return vLLM's reasoning parser whose name is the longest beginning of one of these names."""
    parsers = {_letters(name): name for name in ReasoningParserManager.list_registered()}
    for name in map(_letters, names):
        found = [plain for plain in parsers if plain and name.startswith(plain)]
        if found:
            return parsers[max(found, key=len)]
    return ""


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
