"""`caesura doctor --model`: how a model writes calls and thinking, and what of it is a guess."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from caesura.intercept.calls.formats import NAMES
from caesura.runtime.cli.errors import Complaint
from caesura.runtime.errors import CaesuraError
from caesura.runtime.launch import facts_of_model
from caesura.scheduler.model_facts import ModelFacts


def model_checks(
    model: str, formats: Sequence[str] | None
) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield the names of the checks, and the checks; they raise `Complaint`."""
    try:
        facts = facts_of_model(model, formats)
    except CaesuraError as error:
        yield "model", partial(_fail, str(error))
        return
    yield "call format", partial(_call_format, model, facts)
    yield "thinking", partial(_thinking, facts)
    yield "chat template", partial(_template, model, facts)


def _fail(finding: str) -> str:
    raise Complaint(finding, "correct --model or --format")


def _call_format(model: str, facts: ModelFacts) -> str:
    if not facts.formats:
        raise Complaint(
            f"the chat template of {model} fits no known format, so calls would be shown as text",
            f"name the format with --format: {', '.join(NAMES)}, or a tool parser of vLLM's"
            " (docs/formats.md lists them)",
        )
    names = ", ".join(facts.formats)
    if facts.problem:
        raise Complaint(f"{names}: {facts.problem}", "name another format with --format")
    return f"{names} ({'guessed from the chat template' if facts.detected else 'as named'})"


def _thinking(facts: ModelFacts) -> str:
    shown = ", ".join(facts.regions) or "no markers of thinking"
    like = ""
    if facts.reasoning_parser:
        like = (
            f"; vLLM's --reasoning-parser may be {facts.reasoning_parser}, guessed from the model's"
            " type or name"
        )
    return f"{shown} (guessed from the chat template and the tokens){like}"


def _template(model: str, facts: ModelFacts) -> str:
    if facts.renders_itself:
        return "none: mistral-common renders the messages"
    if facts.template_characters is None:
        raise Complaint(
            f"{model} has none, so messages cannot be rendered",
            "save one as chat_template.jinja in the model's directory",
        )
    return f"{facts.template_characters} characters"
