"""Settings of a session as fields of a request, in both of OpenAI's protocols."""

from collections.abc import Mapping
from typing import Any

from caesura.runtime.errors import UsageError
from caesura.scheduler.messages import CallRule, Sampling, SessionSpec, TextFormat, callable_tools

_SAME = (
    *("temperature", "top_p", "seed", "presence_penalty", "frequency_penalty"),
    *("top_k", "repetition_penalty", "min_p", "min_tokens"),
)
"""Settings that have the same name in a request; those of the second line are vLLM's."""
_LISTS = ("stop", "stop_token_ids", "bad_words")


def common_fields(spec: SessionSpec, sampling: Sampling, model: str) -> dict[str, Any]:
    """Return the fields that both protocols have."""
    given: dict[str, Any] = {name: getattr(sampling, name) for name in _SAME}
    given |= {name: list(getattr(sampling, name)) or None for name in _LISTS}
    biases = {str(token): bias for token, bias in sampling.logit_bias.items()}
    single = sampling.calls is not None and sampling.calls.single
    form = sampling.text
    free = form is not None and form.kind not in ("json_schema", "json_object")
    given |= {
        "model": spec.adapter or model,
        "logit_bias": biases or None,
        "chat_template_kwargs": dict(spec.template) or None,
        "cache_salt": spec.cache_salt,
        "priority": spec.priority or None,
        "parallel_tool_calls": False if single else None,
        "structured_outputs": {form.kind: form.value} if form is not None and free else None,
    }
    return {name: value for name, value in given.items() if value is not None}


def schema_of(form: TextFormat | None) -> dict[str, Any] | None:
    """Return the JSON schema that a text must fit, by the names of OpenAI's protocols."""
    if form is None or form.kind != "json_schema":
        return None
    return {"name": "output", "schema": form.value, "strict": True}


def functions(
    spec: SessionSpec, sampling: Sampling, also_forbidden: bool = False
) -> list[dict[str, Any]]:
    """Return the functions that a turn may call, or all that are known. Raises `UsageError`."""
    rule = sampling.calls or CallRule()
    if rule.inputs:
        raise UsageError(
            f"a server cannot make the calls of {', '.join(sorted(rule.inputs))} follow grammars of"
            " their own: use an engine of this process"
        )
    found = []
    for tool in spec.known_tools if also_forbidden else callable_tools(spec, sampling):
        function = dict(tool["function"])
        if function["name"] in rule.strict:
            function["strict"] = True
        found.append(function)
    return found


def allowed_of(spec: SessionSpec, sampling: Sampling) -> list[str] | None:
    """Return the names of the tools that a turn may call, or None if it may call all of them."""
    allowed = callable_tools(spec, sampling)
    if len(allowed) == len(spec.known_tools) or spec.tool_choice == "none":
        return None
    return [tool["function"]["name"] for tool in allowed]


def choice_of(spec: SessionSpec, sampling: Sampling, named: Mapping[str, Any]) -> Any:
    """Return the `tool_choice`, or None for the default; `named` is that of a single function."""
    if spec.tool_choice == "none":
        return "none"
    rule = sampling.calls
    if rule is None or not rule.required:
        return None
    return named if rule.names is not None and len(rule.names) == 1 else "required"
