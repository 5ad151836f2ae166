"""`llm-comply`, a conformance suite for OpenAI-style servers, against a served script."""

import asyncio
from typing import Any

import pytest

from caesura.runtime.testing import ScriptedEngine, call
from tests.kit.server import MODEL

# The scripted engine, like the bundled model, reads no images; such a request is refused.
NOT_SUPPORTED = {"image-input"}


def answer(messages: Any, tools: Any) -> Any:
    return call(tools[0]["function"]["name"], location="Oslo") if tools else "Hello there."


@pytest.mark.filterwarnings("ignore:jsonschema.RefResolver:DeprecationWarning")
async def test_the_suite_passes(serve_script: Any) -> None:
    pytest.importorskip("llm_comply")
    from llm_comply.config import ComplianceConfig
    from llm_comply.runner import TestRunner
    from llm_comply.schema import _BUNDLED_SPEC, SpecLoader
    from llm_comply.tests import get_tests

    served = await serve_script(ScriptedEngine(answer, model=MODEL))
    config = ComplianceConfig(base_url=f"{served.url}/v1", api_key="any", model=MODEL)
    runner = TestRunner(config, get_tests("open-responses"), SpecLoader(str(_BUNDLED_SPEC)))
    suite = await asyncio.to_thread(runner.run_all)
    results = {each.id: each for each in suite.results}
    failed = {name for name, each in results.items() if each.status.name == "FAILED"}
    assert failed == NOT_SUPPORTED, {name: results[name].errors for name in failed}
    passed = {name for name, each in results.items() if each.status.name == "PASSED"}
    assert len(passed) >= 11
    assert not any(results[name].warnings for name in passed)
