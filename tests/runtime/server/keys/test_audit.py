"""The audit log: who asked, who decided, which tool ran; never a key, and content only if asked."""

import asyncio
import json
import logging

import pytest

from caesura.runtime.audit import AuditLog
from caesura.runtime.cli.serve_options import AuditOptions
from caesura.runtime.errors import UsageError
from caesura.runtime.server.keys.key import Key
from caesura.runtime.testing import call
from caesura.tools.people import People, with_approval
from tests.kit.waiting import until

CHAT = "/v1/chat/completions"
ANN = {"Authorization": "Bearer ann-secret"}


def entries(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def of_items(path) -> list[dict]:
    return [each for each in entries(path) if "item" in each]


@pytest.mark.parametrize("content", [False, True])
async def test_a_call_that_a_person_decides_leaves_its_story(
    serve_script, double, tmp_path, content
):
    people = People(tmp_path / "people.sqlite")
    log = AuditLog(tmp_path / "audit.jsonl", content=content)
    script = [call("double", number=21), "It is 42.", call("double", number=21), "No."]
    tools = [with_approval(double, people)]
    keys = [Key("ann-secret", "Ann")]
    served = await serve_script(script, tools, api_key=keys, people=people, audit=log)

    async def ask() -> str:
        body = served.body(server_tools=["double"])
        async with served.http.post(CHAT, json=body, headers=ANN) as response:
            return (await response.json())["id"]

    for approve, decision in ((True, "approved"), (False, "denied")):
        asking = asyncio.create_task(ask())
        await until(lambda: people.waited_for)
        path = f"/v1/pending/{people.waited_for[0].id}"
        async with served.http.post(path, json={"approve": approve}, headers=ANN) as response:
            assert response.status == 200
        answer = await asking
        count = 2 if approve else 4  # each was asked and decided
        await until(lambda: len(of_items(log.path)) == count)  # noqa: B023
        asked, told = (
            next(e for e in entries(log.path) if e["event"] == event and e["response"] == answer)
            for event in ("asked", decision)
        )
        assert asked["item"] == told["item"]
        assert (told["who"], told["tool"]) == ("Ann", "double")
    done = [each for each in entries(log.path) if each["event"] == "call"]
    assert [(each["key"], each["tool"], each["error"] is None) for each in done] == [
        ("Ann", "double", True),
        ("Ann", "double", False),
    ]
    if content:
        assert all(json.loads(each["arguments"]) == {"number": 21} for each in done)
    else:
        assert len({each["arguments_sha256"] for each in done}) == 1
        assert not any("arguments" in each for each in done)
    assert "ann-secret" not in log.path.read_text()
    assert log.path.stat().st_mode & 0o777 == 0o600
    await people.aclose()


def test_the_file_is_bounded_and_its_owners_alone(tmp_path):
    log = AuditLog(tmp_path / "state" / "audit.jsonl", max_bytes=1000, clock=lambda: 1.0)
    for number in range(100):
        log.add("call", number=number)
    files = sorted(log.path.parent.iterdir())
    assert [file.name for file in files] == ["audit.jsonl", "audit.jsonl.1"]
    assert all(file.stat().st_size <= 1000 and file.stat().st_mode & 0o77 == 0 for file in files)
    assert entries(log.path)[-1] == {"time": 1.0, "event": "call", "number": 99}
    log.close()


def test_an_older_file_that_others_could_read_is_closed_to_them(tmp_path):
    path = tmp_path / "audit.jsonl"
    path.touch(mode=0o644)
    AuditLog(path).add("call")
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_that_cannot_be_written_costs_its_entries_only(tmp_path, caplog):
    (tmp_path / "file").touch()
    log = AuditLog(tmp_path / "file" / "audit.jsonl")
    with caplog.at_level(logging.WARNING):
        log.add("call")
        log.add("call")
    assert log.dropped == 2
    assert len(caplog.records) == 1


def test_it_is_on_where_there_are_tools(tmp_path):
    assert AuditOptions().log(has_tools=False) is None
    assert AuditOptions().log(has_tools=True) is not None
    assert AuditOptions(no_audit=True).log(has_tools=True) is None
    given = AuditOptions(audit=tmp_path / "a").log(has_tools=False)
    assert given is not None and given.path == tmp_path / "a"
    with pytest.raises(UsageError, match="exclude each other"):
        AuditOptions(audit=tmp_path / "a", no_audit=True).log(has_tools=True)
