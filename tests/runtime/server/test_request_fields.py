"""Every route reads the fields of sampling alike, by the table of `tests/kit/request_fields.py`."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from caesura.runtime.server.api import chat_request, messages_request
from caesura.runtime.server.http.errors import ApiError
from caesura.runtime.server.responses import schema
from caesura.runtime.testing import say
from caesura.scheduler.messages import Sampling
from tests.kit.request_fields import (
    BODIES,
    CHAT,
    FIELDS,
    MESSAGES,
    OURS,
    RESPONSES,
    Refused,
    RequestField,
    refused,
    taken,
)
from tests.kit.server import MODEL

READ: dict[str, Callable[[bytes], Any]] = {
    CHAT: chat_request.parse,
    RESPONSES: lambda body: schema.parse(body)[0],
    MESSAGES: lambda body: messages_request.parse(body)[1],
}


def sampling(route: str, body: dict[str, Any]) -> Sampling:
    # The standard's JSON has no NaN, which Python writes and the server must refuse.
    read: Sampling = READ[route](json.dumps({"model": MODEL, **body}).encode()).sampling()
    return read


def named(value: Any) -> str:
    if isinstance(value, RequestField):
        return f"{value.name}={value.value}"
    return f"{value.value!r:.20}" if isinstance(value, Refused) else value


@pytest.mark.parametrize(("route", "field"), list(taken(*OURS)), ids=named)
def test_a_value_that_is_sent_is_read(route: str, field: RequestField) -> None:
    read = sampling(route, field.body(route, field.value))
    assert getattr(read, field.setting or field.name) == field.sampled


@pytest.mark.parametrize("route", OURS)
def test_a_field_that_is_left_out_is_the_models_to_say(route: str) -> None:
    left_out = Sampling(max_tokens=BODIES[route].get("max_tokens"))
    assert sampling(route, dict(BODIES[route])) == left_out
    for _, field in taken(route):
        name = str(field.on(route))
        if name not in BODIES[route]:
            assert sampling(route, {**BODIES[route], name: None}) == left_out, name


@pytest.mark.parametrize(("route", "field", "wrong"), list(refused(*OURS)), ids=named)
def test_a_wrong_value_is_refused_by_its_field(
    route: str, field: RequestField, wrong: Refused
) -> None:
    with pytest.raises(ApiError) as caught:
        sampling(route, field.body(route, wrong.value))
    assert (caught.value.status, caught.value.type) == (400, "invalid_request_error")
    assert caught.value.param == wrong.param.replace(field.name, str(field.on(route)), 1)
    assert wrong.words in caught.value.message


@pytest.mark.parametrize("field", [each for each in FIELDS if not each.on(MESSAGES)], ids=named)
def test_a_field_that_messages_lack_is_refused_there(field: RequestField) -> None:
    with pytest.raises(ApiError, match=f"{field.name} is not supported here"):
        sampling(MESSAGES, {**BODIES[MESSAGES], field.name: field.value})


@pytest.mark.parametrize("route", OURS)
async def test_all_fields_together_reach_the_engine(serve_script: Any, route: str) -> None:
    served = await serve_script([say("Hi.")])
    body, expected = dict(BODIES[route]), {}
    for _, field in taken(route):
        body |= {**field.beside.get(route, {}), str(field.on(route)): field.value}
        expected[field.setting or field.name] = field.sampled
    if route == CHAT:
        body |= {"logprobs": True}  # the row that switches them off is the last
        expected |= {"logprobs": body["top_logprobs"]}
    async with served.http.post(route, json={"model": MODEL, **body}) as response:
        assert response.status == 200, await response.text()
    assert served.engine.sessions[0].samplings[0] == Sampling(**expected)


def test_each_setting_of_sampling_has_a_row() -> None:
    told = {each.setting or each.name for each in FIELDS}
    constraints = {"text", "calls"}  # their own tables tell what a turn may hold
    assert told == set(Sampling.__dataclass_fields__) - constraints
