"""What `/metrics` tells."""

import asyncio

from prometheus_client import REGISTRY, Counter

from caesura.runtime.testing import call, calls


async def test_metrics(serve_script, double):
    script = [calls(call("double", number=1), call("made_up")), "It is 2."]
    served = await serve_script(script, [double])
    await served.chat(server_tools=["double"])
    async with served.http.get("/no/such/route") as response:
        assert response.status == 404
    async with served.http.get("/metrics") as response:
        assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        lines = (await response.text()).splitlines()
    for line in (
        'caesura_requests_total{route="/v1/chat/completions",status="200"} 1.0',
        'caesura_requests_total{route="unknown",status="404"} 1.0',
        'caesura_request_seconds_count{route="/v1/chat/completions"} 1.0',
        "caesura_requests_in_flight 0.0",
        "caesura_time_to_first_token_seconds_count 1.0",
        'caesura_tool_calls_total{outcome="ok",tool="double"} 1.0',
        'caesura_tool_calls_total{outcome="unknown_tool",tool="unknown"} 1.0',
        'caesura_tool_seconds_count{tool="double"} 1.0',
        "caesura_pauses_total 1.0",
        'caesura_resumes_total{handling="preserve"} 1.0',
        "caesura_pause_seconds_count 1.0",
        "caesura_resume_queue_seconds_count 1.0",
    ):
        assert line in lines
    for name in ("prompt", "completion", "cached"):
        assert any(line.startswith(f"caesura_{name}_tokens_total ") for line in lines)


async def test_in_flight_while_a_request_runs(serve_script, hanging):
    served = await serve_script([call("hang"), "Done."], [hanging.tool])
    asking = asyncio.create_task(served.chat(server_tools=["hang"]))
    await hanging.started.wait()
    text = await served.metrics()
    assert "caesura_requests_in_flight 1.0" in text
    assert "caesura_pauses_total 1.0" in text
    hanging.released.set()
    await asking


async def test_client_calls_are_no_pauses(serve_script, weather):
    served = await serve_script([call("weather")])
    await served.chat(tools=[weather])
    assert "caesura_pauses_total 0.0" in await served.metrics()


async def test_applications_count_apart_and_share_the_process_registry(serve_script):
    counter = Counter("caesura_test_of_the_process", "A metric of the process.")
    try:
        first, second = await serve_script(["Fine."]), await serve_script([])
        await first.chat()
        assert "caesura_test_of_the_process_total 0.0" in await first.metrics()
        text = await second.metrics()
        assert "caesura_test_of_the_process_total 0.0" in text
        assert 'status="200"' not in text
    finally:
        REGISTRY.unregister(counter)
