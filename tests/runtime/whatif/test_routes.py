"""`/v1/what-if` over HTTP: begun, shown, cancelled, and refused to foreign pages."""

from pathlib import Path
from typing import Any

import pytest

from caesura.runtime.recording.storage import Store
from caesura.runtime.whatif.replays import Replays
from tests.runtime.whatif.stretches import CALIBRATION, SLEEPER, child_of, under_way

PATH = "/v1/what-if"
BODY: dict[str, Any] = {"recording": 1, "since": 0, "until": 2e9}


def replays_of(store: Store) -> Replays:
    return Replays(store, lambda: CALIBRATION, start=child_of(store.path.parent, SLEEPER))


async def test_a_replay_is_begun_shown_and_cancelled(serve_script: Any, store: Store) -> None:
    replays = replays_of(store)
    served = await serve_script([], replays=replays)
    async with served.http.get(PATH) as answer:
        told = await answer.json()
    assert told["job"] is None and "preserve" in told["policies"]["handling"]
    asked = {**BODY, "policies": {"handling": "preserve"}}
    async with served.http.post(PATH, json=asked) as answer:
        assert answer.status == 202, await answer.text()
    await under_way(replays)
    async with served.http.post(PATH, json=asked) as answer:
        assert answer.status == 409
    async with served.http.delete(PATH) as answer:
        job = (await answer.json())["job"]
    assert (job["state"], job["sessions"]) == ("cancelled", 3)
    assert [one["policies"]["handling"] for one in job["replays"]] == ["caesura", "preserve"]


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"policies": {"handling": "os.system"}}, "choose from: "),
        ({"policies": [{}, {"ranking": "os.system"}]}, "choose from: "),
        ({"policies": {"prediction": "a.b.C"}}, "choose from: handling, ranking, admission"),
        ({"since": 5, "until": 5}, "before it ends"),
        ({"recording": "x"}, "recording"),
    ],
)
async def test_what_cannot_be_replayed_is_refused(
    serve_script: Any, store: Store, changed: dict[str, Any], named: str
) -> None:
    served = await serve_script([], replays=replays_of(store))
    async with served.http.post(PATH, json=BODY | changed) as answer:
        assert answer.status == 400
        assert named in (await answer.json())["error"]["message"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://evil.example"}, 403),
        ({"Host": "rebind.evil.example:8000"}, 403),
        ({"Content-Type": "text/plain"}, 415),
    ],
)
async def test_a_foreign_page_begins_nothing(
    serve_script: Any, store: Store, headers: dict[str, str], status: int
) -> None:
    replays = replays_of(store)
    served = await serve_script([], replays=replays)
    sent = {"Content-Type": "application/json"} | headers
    async with served.http.post(PATH, data=b"{}", headers=sent) as answer:
        assert answer.status == status
    assert replays.job is None


async def test_it_needs_the_key(serve_script: Any, store: Store, tmp_path: Path) -> None:
    served = await serve_script([], replays=replays_of(store), api_key="secret")
    for method in ("GET", "POST", "DELETE"):
        async with served.http.request(method, PATH, json=BODY) as answer:
            assert answer.status == 401
