"""Formats of a model's calls: by the names that users give, by vLLM's parsers, by its own files.

Users name a format of ours or a tool parser of vLLM's, plugins included. The files of a model tell
how it writes calls and thinking, without an engine.
"""

import importlib
import json
import logging
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, is_offline_mode, try_to_load_from_cache
from vllm.envs import VLLM_USE_MODELSCOPE
from vllm.reasoning import ReasoningParserManager
from vllm.tokenizers import get_tokenizer
from vllm.tool_parsers import ToolParser, ToolParserManager
from vllm.utils.import_utils import import_from_path
from vllm.utils.mistral import is_mistral_tokenizer

from caesura.intercept.calls.formats import (
    BY_PARSER,
    GLM,
    HARMONY,
    HERMES,
    HUNYUAN_A13B,
    LLAMA3_JSON,
    NAMES,
    PYTHONIC,
    QWEN3_CODER,
    turn_format,
)
from caesura.intercept.calls.thinking import REGIONS
from caesura.scheduler.errors import UsageError
from caesura.scheduler.model_facts import ModelFacts
from caesura.scheduler.vllm.client.parsing import turn_parser
from caesura.scheduler.vllm.client.rendering.mistral import MistralRenderer
from caesura.scheduler.vllm.client.rendering.render import Renderer
from caesura.scheduler.vllm.tokenizer import (
    check_vocabulary,
    format_names,
    template_of,
    thinking_regions,
    vocabulary_from,
)

logger = logging.getLogger(__name__)

HUB_SECONDS = 10.0
"""How long the hub may take to answer whether it is there."""
NO_CONNECTION = ("ConnectError", "ConnectTimeout", "ConnectionError")
"""Classes of errors, and their bases, of a server that cannot be reached."""
ROWS = {
    "ernie45": HERMES.name,
    "glm45": GLM.name,
    "glm47": GLM.name,
    "granite4": HERMES.name,
    "jamba": HUNYUAN_A13B.name,
    "ling3": GLM.name,
    "llama4_json": LLAMA3_JSON.name,
    "llama4_pythonic": PYTHONIC.name,
    "openai": HARMONY.name,
    "qwen3_json": HERMES.name,
    "qwen3_xml": QWEN3_CODER.name,
    "step3p5": QWEN3_CODER.name,
}
"""Rows of our table for vLLM's parsers of another name that read the same calls."""
OURS = "caesura_"
"""How the names of the tool parsers begin that Caesura registers with vLLM."""


def parsers() -> list[str]:
    """Return the names of vLLM's tool parsers, plugins included, without ours."""
    return [name for name in ToolParserManager.list_registered() if not name.startswith(OURS)]


def named_formats(names: Iterable[str]) -> tuple[str, ...]:
    """Return the formats that a user has named: by our names, or by vLLM's tool parsers.

    Raises `UsageError` for a name that is neither.
    """
    return tuple(_named(name) for name in names)


def with_parser(detected: Iterable[str], parser: str | None) -> tuple[str, ...]:
    """Return the detected formats, with the calls of a turn as vLLM's `parser` reads them.

    A parser that works in vLLM's server alone changes nothing. Raises `UsageError` for an unknown
    parser.
    """
    detected = tuple(detected)
    if parser is None or (parser in parsers() and not reads_text(parser)):
        return detected
    in_sentence = (name for name in detected if turn_format([name]) is None)
    return (_named(parser.removeprefix(OURS)), *in_sentence)


def load_plugin(path: str | None) -> None:
    """Import a module or a file that registers tool parsers with vLLM; None imports nothing.

    Raises `UsageError` if it cannot be imported, where vLLM's own import only logs the error.
    """
    if not path:
        return
    try:
        if path.endswith(".py"):
            import_from_path(Path(path).stem, path)
        else:
            importlib.import_module(path)
    except Exception as error:
        raise UsageError(f"--tool-parser-plugin {path} cannot be imported: {error}") from error


def reads_text(parser: str) -> bool:
    """Return whether vLLM's parser of this name can read the text of a turn by itself.

    Some only stand for a parser of whole answers in vLLM's server.
    """
    made = ToolParserManager.get_tool_parser(parser)
    return made.extract_tool_calls is not ToolParser.extract_tool_calls


def _named(name: str) -> str:
    if name in NAMES:
        return name
    if name in ROWS:
        return ROWS[name]
    parser = name.removeprefix(BY_PARSER)
    if parser not in parsers():
        raise UsageError(
            f"unknown call format {name!r}; choose from: {', '.join(NAMES)}; or a tool parser of"
            f" vLLM's: {', '.join(each for each in parsers() if each not in {*NAMES, *ROWS})}"
        )
    if not reads_text(parser):
        raise UsageError(
            f"vLLM's tool parser {parser!r} reads answers only in vLLM's server; give it to"
            f" `caesura serve` as `-- --tool-call-parser {parser}`, for tools of clients"
        )
    return f"{BY_PARSER}{parser}"


def check_files(model: str) -> None:
    """Raise `UsageError` for a folder that holds no model, and for a folder that is not there.

    Other names are those of models on a hub, which vLLM fetches. It is a `UsageError` too if the
    hub cannot be reached, and the model was not fetched before.
    """
    folder = Path(model)
    if not folder.is_dir():
        if folder.is_absolute():
            raise UsageError(f"there is no model directory {model}; check the path")
        _check_hub(model)
        return
    path = folder / "config.json"
    if not path.exists():
        if not (folder / "params.json").exists():
            raise UsageError(
                f"{model} holds no model: config.json is missing; name the folder that a model was"
                " saved to, or a model's name on Hugging Face"
            )
        return
    try:
        config = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{path} is not valid JSON ({error}); correct it, or fetch the model again"
        ) from error
    if not isinstance(config, dict):
        raise UsageError(
            f"{path} holds a JSON {type(config).__name__} and no object; fetch the model again"
        )


def _check_hub(model: str) -> None:
    """Ask the hub once for a model, since its client tries for half a minute without a network.

    Whatever the hub answers is left to vLLM. Raises `UsageError` if it cannot be reached and the
    model's configuration is not in the cache.
    """
    if is_offline_mode() or VLLM_USE_MODELSCOPE:
        return
    hub = HfApi()
    try:
        hub.model_info(model, timeout=HUB_SECONDS)
    except Exception as error:  # of its HTTP library, which is another one in each release
        if not any(each.__name__ in NO_CONNECTION for each in type(error).__mro__):
            return
        if isinstance(try_to_load_from_cache(model, "config.json"), str):
            logger.warning(
                "%s cannot be reached, and each file of %s is tried for half a minute before the"
                " one that was fetched before is used: set HF_HUB_OFFLINE=1 to use those at once",
                *(hub.endpoint, model),
            )
            return
        raise UsageError(
            f"{model} is no folder here and was not fetched before, and {hub.endpoint} cannot be"
            f" reached ({error}): name the folder of a model, check the network or HF_ENDPOINT, or"
            " set HF_HOME to the cache that holds the model, and HF_HUB_OFFLINE=1"
        ) from None


def facts_of_model(model: str, formats: tuple[str, ...] | None) -> ModelFacts:
    """Return what the model's tokenizer, template and configuration tell.

    `formats` are those that a user has named. Raises `UsageError` for a folder without a model, for
    a model without a readable tokenizer and for unknown formats.
    """
    check_files(model)
    try:
        tokenizer: Any = get_tokenizer(model)
    except Exception as error:  # transformers raises many classes of errors for broken files
        reason = " ".join(str(error).split())
        if reason.startswith("Couldn't instantiate the backend tokenizer"):
            reason = "no file of a tokenizer is there; fetch or save it too (tokenizer.json)"
        raise UsageError(f"the tokenizer of {model} cannot be read: {reason}") from error
    template = template_of(tokenizer)
    known = format_names(tokenizer, template) if formats is None else named_formats(formats)
    by_library = is_mistral_tokenizer(tokenizer)
    renderer = (MistralRenderer if by_library else Renderer)(tokenizer, frozenset())
    openers = thinking_regions(tokenizer, template, known, "")
    return ModelFacts(
        formats=known,
        detected=formats is None,
        problem=_problem(tokenizer, known),
        regions=tuple(f"{opener} ... {REGIONS[opener]}" for opener in openers),
        reasoning_parser=_like(_names_of(model)),
        template_characters=len(template) if template else None,
        renders_itself=by_library,
        messages=renderer.roles.told if template or by_library else (),
        pictures_in=renderer.pictures_in if template else (),
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
