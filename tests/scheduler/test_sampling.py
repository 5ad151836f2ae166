"""What a turn's settings become in vLLM's `SamplingParams`, by the table of request fields."""

from functools import cache
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
    assert {name: value for name, value in given.items() if value != plain[name]} == field.params


def test_all_settings_together_become_vllms() -> None:
    settings = {field.setting or field.name: field.sampled for field in FIELDS}
    given = parameters(Sampling(**{**settings, "logprobs": 4}))
    params = {name: value for field in FIELDS for name, value in field.params.items()}
    for name, value in {**params, "logprobs": 4}.items():
        assert given[name] == value, name


def test_what_vllm_refuses_is_the_callers_mistake() -> None:
    with pytest.raises(UsageError, match="top_p must be in"):
        parameters(Sampling(top_p=2.0))
