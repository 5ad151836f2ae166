"""Grammars of two libraries in one engine: what guidance alone takes spoils nothing for XGrammar.

vLLM's own manager compiles them with the bundled model's tokenizer, and makes the masks.
"""

import json
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import pytest
from vllm import SamplingParams
from vllm.engine.arg_utils import EngineArgs
from vllm.sampling_params import StructuredOutputsParams
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager
from vllm.v1.structured_output.backend_guidance import GuidanceGrammar

from caesura.runtime.launch import BUNDLED_MODEL
from caesura.scheduler.vllm.engine.port.grammar_backend import use_both_backends

CONFIG = EngineArgs(BUNDLED_MODEL, max_model_len=256).create_engine_config()
ANY_NUMBER = {"type": "json_schema", "json_schema": {"type": "integer"}}
CALL = {"structural_tag": json.dumps({"type": "structural_tag", "format": ANY_NUMBER})}
DIVISIBLE = {"json": {"type": "integer", "multipleOf": 3, "minimum": 30, "maximum": 39}}
ORDERS = pytest.mark.parametrize("kinds", [(CALL, DIVISIBLE), (DIVISIBLE, CALL)])


def make_manager(ours: bool) -> Any:
    manager = StructuredOutputManager(CONFIG)
    if ours:
        use_both_backends(manager)
    return manager


def request_of(manager: Any, name: str, fields: dict[str, Any]) -> Request:
    """Return a request as vLLM's frontend sends it to the engine."""
    params = SamplingParams(max_tokens=9, structured_outputs=StructuredOutputsParams(**fields))
    chosen = CONFIG.structured_outputs_config
    params._validate_structured_outputs(CONFIG.model_config, chosen, manager.tokenizer)
    request = Request(name, [1, 2], params, None)
    manager.grammar_init(request)
    return request


def compiled(request: Request) -> Any:
    assert request.structured_output_request is not None
    made: Any = request.structured_output_request._grammar
    return made.result(60) if isinstance(made, Future) else made


def allowed(manager: Any, requests: Sequence[Request]) -> list[set[str]]:
    """Return the digits that a mask of all requests lets each of them write next."""
    for request in requests:
        assert request.structured_output_request is not None
        request.structured_output_request.grammar = compiled(request)
    by_id = {request.request_id: request for request in requests}
    masks = manager.grammar_bitmask(by_id, list(by_id), {})
    digits = {manager.tokenizer.encode(digit)[-1]: digit for digit in "0123456789"}
    return [
        {digit for token, digit in digits.items() if mask[token // 32] >> (token % 32) & 1}
        for mask in masks
    ]


@ORDERS
def test_each_grammar_holds_in_either_order(kinds: Sequence[dict[str, Any]]) -> None:
    manager = make_manager(ours=True)
    requests = [request_of(manager, str(at), fields) for at, fields in enumerate(kinds)]
    after_three = {"0", "3", "6", "9"}
    first = dict(zip(map(str, kinds), allowed(manager, requests), strict=True))
    assert first == {str(CALL): set("0123456789"), str(DIVISIBLE): {"3"}}
    three = manager.tokenizer.encode("3")[-1]
    assert all(manager.accept_tokens(request, [three]) for request in requests)
    then = dict(zip(map(str, kinds), allowed(manager, requests), strict=True))
    assert then == {str(CALL): set("0123456789"), str(DIVISIBLE): after_three}


def test_vllms_own_manager_fails_calls_behind_such_a_schema() -> None:
    """The control: without this, one of the two would not be enforced."""
    manager = make_manager(ours=False)
    compiled(request_of(manager, "0", DIVISIBLE))
    with pytest.raises(Exception, match=r"triggers|one backend"):
        compiled(request_of(manager, "1", CALL))


def test_an_operators_choice_stays() -> None:
    config = EngineArgs(
        BUNDLED_MODEL, max_model_len=256, structured_outputs_config={"backend": "guidance"}
    ).create_engine_config()
    manager = StructuredOutputManager(config)
    use_both_backends(manager)
    assert manager.backend is None


def test_what_xgrammar_refuses_is_compiled_by_guidance() -> None:
    manager = make_manager(ours=True)
    lark: dict[str, Any] = {"grammar": "start: NUMBER\nNUMBER: /[1-3]/ & /[2-5]/\n"}
    request = request_of(manager, "0", lark)
    assert isinstance(compiled(request), GuidanceGrammar)
    assert allowed(manager, [request]) == [{"2", "3"}]
