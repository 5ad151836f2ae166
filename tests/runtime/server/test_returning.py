"""The headers by which a client, or a router of several servers, finds a server again."""

from typing import Any

import pytest

from caesura.runtime.errors import UsageError
from caesura.runtime.server.http.returning import ANSWER, SERVER, checked_server
from caesura.scheduler.programs import SESSION
from tests.kit.server import MODEL


async def test_every_answer_names_its_server_and_the_session_of_the_request(
    serve_script: Any,
) -> None:
    served = await serve_script(["Hi."], server_name="node-7:0")
    async with served.http.post(
        "/v1/chat/completions", json=served.body(), headers={SESSION: "mine"}
    ) as answer:
        assert (answer.headers[SERVER], answer.headers[SESSION]) == ("node-7:0", "mine")
        assert answer.headers[ANSWER] == (await answer.json())["id"]
    async with served.http.get("/nowhere") as answer:
        assert (answer.status, answer.headers[SERVER]) == (404, "node-7:0")
        assert SESSION not in answer.headers and ANSWER not in answer.headers


async def test_what_later_requests_may_name_stands_in_the_header(serve_script: Any) -> None:
    served = await serve_script(["Hi."], server_name="a")
    body = {"model": MODEL, "input": "Hello", "stream": True}
    async with served.http.post("/v1/responses", json=body) as answer:
        assert f'"id":"{answer.headers[ANSWER]}"' in await answer.text()
    async with served.http.post("/v1/conversations", json={}) as answer:
        assert answer.headers[ANSWER] == (await answer.json())["id"]


async def test_a_server_without_a_name_sends_no_such_header(serve_script: Any) -> None:
    served = await serve_script(["Hi."])
    async with served.http.post("/v1/chat/completions", json=served.body()) as answer:
        assert not {SERVER, ANSWER, SESSION} & set(answer.headers)


@pytest.mark.parametrize("name", ["", "a b", "a\r\nSet-Cookie: b", "x" * 129, "ü"])
def test_a_name_that_no_header_can_carry_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="server's name"):
        checked_server(name)
