"""What a turn's settings become in vLLM's `SamplingParams`, by the table of request fields."""

from functools import cache
from math import inf, nan
from typing import Any

import pytest

from caesura.scheduler.errors import UsageError
from caesura.scheduler.messages import Sampling
from caesura.scheduler.vllm.client.sampling import SamplingRules
from tests.kit.request_fields import FIELDS, RequestField
from tests.scheduler.unstarted import bundled, engine_with

LIMIT = 50


@cache
def rules() -> SamplingRules:
    """The rules of a model whose configuration says nothing of sampling."""
    return engine_with(bundled("{{ messages }}")).sampling


def parameters(sampling: Sampling) -> dict[str, Any]:
    """Return vLLM's parameters of a turn, by their names."""
    params = rules().params(sampling, sampling.max_tokens or LIMIT, None)
    return {name: getattr(params, name) for name in params.__struct_fields__ if name[0] != "_"}


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: f"{field.name}={field.value}")
def test_a_setting_becomes_vllms_and_changes_no_other(field: RequestField) -> None:
    plain = parameters(Sampling())
    given = parameters(Sampling(**{field.setting or field.name: field.sampled}))
    # Each log probability as an object would take much memory.
    flat = {"flat_logprobs": True} if "logprobs" in field.params else {}
    changed = {name: value for name, value in given.items() if value != plain[name]}
    assert changed == {**field.params, **flat}


def test_all_settings_together_become_vllms() -> None:
    settings = {field.setting or field.name: field.sampled for field in FIELDS}
    given = parameters(Sampling(**{**settings, "logprobs": 4}))
    params = {name: value for field in FIELDS for name, value in field.params.items()}
    for name, value in {**params, "logprobs": 4}.items():
        assert given[name] == value, name


def test_what_vllm_refuses_is_the_callers_mistake() -> None:
    with pytest.raises(UsageError, match="min_tokens must be less than or equal to max_tokens=3"):
        parameters(Sampling(min_tokens=9, max_tokens=3))


@pytest.mark.parametrize(
    ("setting", "wrong", "said"),
    [
        ("temperature", (-0.1, 2.1, inf, nan), "from 0, which is greedy, to 2"),
        ("top_p", (0, 1.01, -1), "above 0 and at most 1"),
        ("top_k", (-2,), "from 1, or 0 or -1 for all tokens"),
        ("min_p", (-0.1, 1.1), "from 0 to 1"),
        ("presence_penalty", (-2.1, 2.1), "from -2 to 2"),
        ("frequency_penalty", (-2.1, 2.1), "from -2 to 2"),
        ("repetition_penalty", (0, -1, inf), "above 0, such as 1.1; 1 is no penalty"),
        ("max_tokens", (0, -5), "from 1, or None for no bound"),
        ("min_tokens", (-1,), "from 0"),
        ("seed", (2**63, -(2**63) - 1), "a whole number of 64 bits"),
        ("logprobs", (-1,), "from 0, or None for none"),
    ],
)
def test_a_setting_out_of_its_range_is_told_with_its_value(
    setting: str, wrong: tuple[Any, ...], said: str
) -> None:
    for value in wrong:
        with pytest.raises(UsageError) as raised:
            Sampling(**{setting: value})
        assert str(raised.value) == f"{setting} must be {said}, got {value!r}"


@pytest.mark.parametrize(
    "edge",
    [
        *({"temperature": 0}, {"temperature": 2}, {"top_p": 1}, {"top_p": 1e-9}, {"top_k": -1}),
        *({"min_p": 0}, {"min_p": 1}, {"presence_penalty": -2}, {"frequency_penalty": 2}),
        *({"repetition_penalty": 0.01}, {"max_tokens": 1}, {"min_tokens": 0}, {"logprobs": 0}),
        *({"seed": 2**63 - 1}, {"seed": -(2**63)}),
    ],
)
def test_vllm_takes_the_edges_of_the_ranges(edge: dict[str, Any]) -> None:
    parameters(Sampling(**edge))
