"""The variables that a request sets for the model's chat template."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator

RESERVED = frozenset(
    {
        "add_generation_prompt",
        "chat_template",
        "continue_final_message",
        "conversation",
        "messages",
        "return_dict",
        "return_tensors",
        "tokenize",
        "tools",
    }
)
"""Variables of chat templates that a request must not set."""


def _free(variables: dict[str, Any]) -> dict[str, Any]:
    for name in sorted(RESERVED & set(variables)):
        raise ValueError(f"may not set {name}, which the server sets itself")
    return variables


TemplateVariables = Annotated[dict[str, Any], AfterValidator(_free)]
"""vLLM's field `chat_template_kwargs`."""


def template_variables(effort: str | None, variables: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the variables for the template, as vLLM's server names them.

    `effort` is that of the request's reasoning; `variables` come before what it implies.
    """
    given: dict[str, Any] = {}
    if effort is not None:
        given["reasoning_effort"] = effort
        given["enable_thinking"] = effort != "none"
    return given | dict(variables or {})
