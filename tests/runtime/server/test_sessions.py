"""`/v1/sessions`: the trajectories of a server's sessions, and a base URL for each of them."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import anthropic
import atif
import openai
import pytest
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send
from yarl import URL

from caesura import Agent, tool
from caesura.runtime.server.keys.key import Key, tenant_of
from caesura.runtime.testing import Item, call, say
from caesura.runtime.trajectories.adapters.atif import from_atif
from caesura.runtime.trajectories.files import from_json, to_json
from caesura.runtime.trajectories.kept import KeptSessions, SessionBounds
from caesura.runtime.trajectories.trajectory import Medium
from caesura.scheduler.messages import MediaRules
from caesura.scheduler.vllm_server import VllmServer
from caesura.trajectories import Trajectory, read_jsonl
from tests.kit.rendered import RenderedEngine
from tests.kit.server import MODEL, WEATHER
from tests.kit.splicing import CALL, Splicing, whole
from tests.runtime.trajectories.computed import check, turns_in

BOUNDS = SessionBounds()
ANN, BOB = ({"Authorization": f"Bearer {each}"} for each in ("ann", "bob"))


@tool
async def double(number: int) -> int:
    """Double a number."""
    return 2 * number


def model(messages: Any, tools: Any) -> Item:
    """Do what the last message asks for."""
    last = messages[-1]
    text = last["content"] if isinstance(last["content"], str) else str(last["content"])
    names = [each["function"]["name"] for each in tools]
    if last["role"] == "user" and "double" in text and "double" in names:
        return call("double", number=len(messages))
    if last["role"] == "user" and "helper" in text and "helper" in names:
        return call("helper", task="Hi.")
    if last["role"] == "user" and "weather" in text and "weather" in names:
        return call("weather", city="Ulm")
    return say(f"{len(messages)} messages.")


@pytest.fixture
async def served(serve_script: Any) -> Any:
    engine = RenderedEngine(model)
    return await serve_script(engine, [double], sessions=KeptSessions(BOUNDS, one_owner=True))


@pytest.fixture
async def clients() -> AsyncIterator[Any]:
    """OpenAI's and Anthropic's own clients with a base URL."""
    made: list[Any] = []

    def connect(url: str, key: str = "any") -> tuple[Any, Any]:
        about: dict[str, Any] = {"base_url": url, "api_key": key, "max_retries": 0}
        made.extend((openai.AsyncOpenAI(**about), anthropic.AsyncAnthropic(**about)))
        return made[-2], made[-1]

    yield connect
    for each in made:
        await each.close()


async def asked(
    served: Any, path: str | URL, status: int = 200, *, method: str = "GET", **options: Any
) -> Any:
    async with served.http.request(method, path, **options) as response:
        assert response.status == status, await response.text()
        return await response.json()


async def posted(served: Any, path: str | URL, body: Any, status: int = 200, **options: Any) -> Any:
    return await asked(served, path, status, method="POST", json=body, **options)


async def trajectories(served: Any, name: str, **options: Any) -> list[Trajectory]:
    """Return the trajectory of a session, and those below it."""
    told = await asked(served, f"/v1/sessions/{name}/trajectories", **options)
    return [from_json(json.dumps(each)) for each in told["data"]]


def sources(trajectory: Trajectory) -> list[str]:
    return [" ".join(part.source for part in each.segments) for each in trajectory.branches]


# -- what is recorded ------------------------------------------------------------------------------


async def chat(served: Any, headers: Mapping[str, str], messages: list[Any], **fields: Any) -> Any:
    """Ask for a chat completion, and add its answer to the messages."""
    body = served.body(messages=messages, **fields)
    told = await posted(served, "/v1/chat/completions", body, headers=headers)
    messages.append(told["choices"][0]["message"])
    return told


async def message(served: Any, headers: Mapping[str, str], messages: list[Any]) -> Any:
    body = served.body(messages=messages, max_tokens=99, server_tools=["double"])
    told = await posted(served, "/v1/messages", body, headers=headers)
    messages.append({"role": "assistant", "content": told["content"]})
    return told


async def response(served: Any, headers: Mapping[str, str], items: list[Any]) -> Any:
    function: Any = WEATHER["function"]
    tools = [{"type": "function"} | function]
    body = {"model": MODEL, "input": items, "store": False, "tools": tools}
    told = await posted(served, "/v1/responses", body, headers=headers)
    items += told["output"]
    return told


@pytest.mark.parametrize("seed", range(6))
async def test_each_session_has_the_turns_that_were_computed_for_it(served: Any, seed: int) -> None:
    """Sessions at once, by all three APIs, whose histories go on, branch, and are edited."""
    rng = random.Random(seed)
    names = ["one", "two/deep", "three"]

    async def play(name: str, rng: random.Random) -> None:
        headers = {"Caesura-Session": name}
        for _ in range(3):
            ask = rng.choice([chat, message, response])
            messages: list[Any] = []
            for _ in range(rng.randrange(1, 5)):
                if messages and rng.random() < 0.3:  # the history is edited
                    del messages[rng.randrange(len(messages)) :]
                text = rng.choice(["Hi.", "double it", "And the weather?"])
                messages.append({"role": "user", "content": text})
                if ask is not chat:
                    await ask(served, headers, messages)
                else:
                    fields = {"server_tools": ["double"], "n": rng.choice([1, 1, 2])}
                    await chat(served, headers, messages, **fields)

    await asyncio.gather(*(play(name, random.Random(rng.random())) for name in names * 2))
    assert served.engine.open_sessions == 0
    for name in names:
        (trajectory,) = await trajectories(served, name)
        check(trajectory)
        computed = served.engine.computed[tenant_of(None), name]
        assert turns_in(trajectory, name) == Counter(each for each in computed if each[1])
        told = await asked(served, f"/v1/sessions/{name}")
        assert told["tokens"] == sum(
            len(part.tokens) for each in trajectory.branches for part in each.segments
        )


async def test_a_run_of_the_server_and_a_follow_up_are_one_sequence(served: Any) -> None:
    messages = [{"role": "user", "content": "double it"}]
    headers = {"Caesura-Session": "s", "Caesura-Parent": "p"}
    await chat(served, headers, messages, server_tools=["double"])
    messages.append({"role": "user", "content": "Thanks."})
    await chat(served, headers, messages, server_tools=["double"])
    (trajectory,) = await trajectories(served, "s")
    assert (trajectory.session, trajectory.parent) == ("s", "p")
    (branch,) = trajectory.branches
    assert sources(trajectory) == ["prompt sampled tool sampled user sampled"]
    stops = [part.stop_reason for part in branch.segments if part.source == "sampled"]
    assert stops == ["call", "stop", "stop"] and branch.model == MODEL
    spans = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6)]
    assert [part.messages for part in branch.segments] == spans
    rollout = trajectory.rollout()
    (*_, (context, sampled)) = served.engine.computed[tenant_of(None), "s"]
    assert rollout.ids == context + sampled
    masked = [bit for part in branch.segments for bit in part.loss_mask]
    assert [0] * len(rollout.prompt_ids) + list(rollout.loss_mask) == masked


async def test_calls_of_the_client_end_a_turn_at_calls(served: Any) -> None:
    messages: list[Any] = [{"role": "user", "content": "weather"}]
    told = await chat(served, {}, messages, tools=[WEATHER])
    name = told["id"]
    (trajectory,) = await trajectories(served, name)
    assert trajectory.session == name and trajectory.branches[0].segments[-1].stop_reason == "call"
    made = messages[-1]["tool_calls"][0]["id"]
    messages.append({"role": "tool", "tool_call_id": made, "content": "rain"})
    headers = {"Caesura-Session": name}
    await chat(served, headers, messages, tools=[WEATHER])
    (trajectory,) = await trajectories(served, name)
    assert sources(trajectory) == ["prompt sampled tool sampled"]


async def test_choices_are_branches_of_one_prompt(served: Any) -> None:
    await chat(served, {"Caesura-Session": "s"}, [{"role": "user", "content": "Hi."}], n=3)
    (trajectory,) = await trajectories(served, "s")
    assert sources(trajectory) == ["prompt sampled", "sampled", "sampled"]
    assert len({each.prompt_ids for each in trajectory.rollouts()}) == 1


async def test_responses_that_continue_each_other_are_one_session(served: Any) -> None:
    body = {"model": MODEL, "input": "Hi."}
    first = await posted(served, "/v1/responses", body)
    again = {**body, "previous_response_id": first["id"]}
    second = await posted(served, "/v1/responses", again)
    (trajectory,) = await trajectories(served, second["id"])
    assert trajectory.session == first["id"]
    assert sources(trajectory) == ["prompt sampled user sampled"]
    conversation = await posted(served, "/v1/conversations", {})
    await posted(served, "/v1/responses", {**body, "conversation": conversation["id"]})
    assert len(await trajectories(served, conversation["id"])) == 1


async def test_json_lines_are_read_back(served: Any, tmp_path: Path) -> None:
    await chat(served, {"Caesura-Session": "s"}, [{"role": "user", "content": "Hi."}])
    path = tmp_path / "s.jsonl"
    for query, headers in (("?format=jsonl", {}), ("", {"Accept": "application/jsonl"})):
        address = f"/v1/sessions/s/trajectories{query}"
        async with served.http.get(address, headers=headers) as answer:
            assert answer.content_type == "application/jsonl"
            path.write_bytes(await answer.read())
        assert read_jsonl(path) == await trajectories(served, "s")
    told = await asked(served, "/v1/sessions/s/trajectories?format=xml", 400)
    assert told["error"]["message"] == "format must be one of json, jsonl, atif, got 'xml'."


async def test_a_document_in_atif_holds_the_sub_agents(served: Any) -> None:
    session = await posted(served, "/v1/sessions", {})
    path = f"/v1/sessions/{session['id']}/trajectories?format=atif"
    told = await asked(served, path, 409)
    assert told["error"]["message"].startswith("Nothing was sampled yet in the session")
    child = await posted(served, "/v1/sessions", {"parent": session["id"]})
    for each in (session, child):
        await posted(served, f"/s/{each['id']}/v1/chat/completions", served.body())
    told = await asked(served, path)
    assert atif.Trajectory.model_validate(told).to_json_dict() == told
    assert from_atif(told) == await trajectories(served, session["id"])
    assert [each["session_id"] for each in told["subagent_trajectories"]] == [child["id"]]


class Theirs:
    """A stand-in for vLLM's application, which samples the tokens that it is told to."""

    def __init__(self, splicing: Splicing, *turns: tuple[list[int], list[int], Any]) -> None:
        self._splicing = splicing
        self._turns = list(turns)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        tap = self._splicing.tap
        for _ in range(2 if scope["path"] == "/v1/completions" else 1):
            prompt, sampled, answer = self._turns.pop(0)
            tap.requests += 1
            assert tap.listener is not None
            tap.listener.sent(f"chatcmpl-{len(self._turns)}")
            tap.tokens += [*prompt, *sampled]
            tap.prompt, tap.cached_tokens, tap.reason = len(prompt), 1, "stop"
        await JSONResponse(answer)(scope, receive, send)


async def test_turns_of_vllms_own_server_are_recorded(serve_script: Any) -> None:
    splicing, hi = Splicing(), {"role": "assistant", "content": "Hi."}
    called = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    theirs = Theirs(
        splicing,
        ([1, 2], [3], whole(called)),
        ([1, 2, 3, 4], [5], whole(hi)),
        ([1, 6], [7], whole(hi)),
        *[([1], [2], {"choices": []})] * 2,
    )
    engine = RenderedEngine(model)
    served = await serve_script(
        engine,
        sessions=KeptSessions(BOUNDS, one_owner=True),
        vllm=VllmServer(theirs, None, splicing=splicing, tapped=splicing.tapped),
    )
    headers = {"Caesura-Session": "s"}
    messages: list[Any] = [{"role": "user", "content": "weather"}]
    await chat(served, headers, messages, tools=[WEATHER])
    messages.append({"role": "tool", "tool_call_id": CALL["id"], "content": "rain"})
    await chat(served, headers, messages, tools=[WEATHER])
    await chat(served, headers, [{"role": "user", "content": "Hi."}])
    (trajectory,) = await trajectories(served, "s")
    assert sources(trajectory) == ["prompt sampled tool sampled", "prompt sampled"]
    first, other = trajectory.branches
    assert trajectory.rollout(first.id).ids == (1, 2, 3, 4, 5)
    assert (other.branch_point, trajectory.rollout(other.id).ids) == (1, (1, 6, 7))
    assert [each.stop_reason for each in first.segments] == [None, "call", None, "stop"]
    assert [each.messages for each in first.segments] == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert first.segments[1].cached_tokens == 1
    assert first.segments[1].started_at is not None and first.segments[1].seconds is not None
    assert await trajectories(served, "chatcmpl-4") == [trajectory]

    # Answers whose tokens would be mixed are ours, or say why nothing is known of them.
    await chat(served, headers, [{"role": "user", "content": "Hi."}], n=2)
    assert len(engine.sessions) == 2 and len((await trajectories(served, "s"))[0].branches) == 4
    body = {"model": MODEL, "prompt": ["Hi.", "Ho."]}
    await posted(served, "/v1/completions", body, headers=headers)
    told = await asked(served, "/v1/sessions/s/trajectories", 409)
    assert "the tokens of several answers to one request are not known apart" in str(told)


PICTURE = "data:image/png;base64,cGl4ZWxz"
SHOWN: dict[str, Any] = {
    "role": "user",
    "content": [{"type": "image_url", "image_url": {"url": PICTURE}}],
}
PIXELS = sha256(b"pixels").hexdigest()


async def theirs_alone(serve_script: Any, *turns: tuple[list[int], list[int], Any]) -> Any:
    """A server whose answers vLLM's own server makes, from these turns."""
    splicing = Splicing()
    vllm = VllmServer(
        Theirs(splicing, *turns), None, None, parses_alone=True, tapped=splicing.tapped
    )
    engine = RenderedEngine(model, media=MediaRules({"image": 2}))
    return await serve_script(engine, sessions=KeptSessions(BOUNDS, one_owner=True), vllm=vllm)


async def test_pictures_are_references_in_turns_of_vllms_own_server(serve_script: Any) -> None:
    hi = whole({"role": "assistant", "content": "Hi."})
    served = await theirs_alone(
        serve_script,
        ([9, 9, 1], [2], hi),
        ([9, 9, 1, 2, 3, 9], [4], hi),
        ([9, 9, 1], [5], hi),
        ([9, 9, 1], [6], hi),
    )
    headers = {"Caesura-Session": "s"}
    messages: list[Any] = [SHOWN]
    await chat(served, headers, messages)
    messages.append(
        {"role": "user", "content": [{"type": "text", "text": "And?"}, *SHOWN["content"]]}
    )
    await chat(served, headers, messages)
    other = PICTURE.replace("cGl4ZWxz", "b3RoZXI=")
    await chat(
        served,
        headers,
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": other}}]}],
    )
    source = {"type": "base64", "media_type": "image/png", "data": "cGl4ZWxz"}
    block = {"type": "image", "source": source}
    body = served.body(max_tokens=9, messages=[{"role": "user", "content": [block]}])
    await posted(served, "/v1/messages", body, headers=headers)
    (trajectory,) = await trajectories(served, "s")
    first, second, third = trajectory.branches
    assert sources(trajectory) == ["prompt sampled user sampled", "prompt sampled", "sampled"]
    held = [
        [(each.digest, each.message, each.part) for each in part.media] for part in first.segments
    ]
    assert held == [[(PIXELS, 0, 0)], [], [(PIXELS, 2, 1)], []]
    # Placeholders of another picture are no shared tokens, though they are equal.
    assert (second.parent, third.parent, third.branch_point) == (None, first.id, 3)
    assert second.segments[0].media[0].digest == sha256(b"other").hexdigest()
    assert "pixels" not in to_json(trajectory) and "cGl4ZWxz" not in to_json(trajectory)


async def test_pictures_are_references_in_the_servers_own_runs(serve_script: Any) -> None:
    engine = RenderedEngine(model, media=MediaRules({"image": 2}))
    served = await serve_script(engine, sessions=KeptSessions(BOUNDS, one_owner=True))
    await chat(served, {"Caesura-Session": "s"}, [SHOWN])
    (trajectory,) = await trajectories(served, "s")
    prompt, _ = trajectory.branches[0].segments
    assert prompt.media == (Medium("image", PIXELS, 0, 0),)


async def test_several_answers_that_vllm_would_mix_are_refused_at_a_base_url(
    serve_script: Any,
) -> None:
    hi = whole({"role": "assistant", "content": "Hi."})
    served = await theirs_alone(serve_script, *[([1], [2], hi)] * 3)
    session = await posted(served, "/v1/sessions", {})
    prompts = {"model": MODEL, "prompt": ["Hi.", "Ho."]}
    for path, body in (
        ("chat/completions", served.body(n=2)),
        ("completions", {"model": MODEL, "prompt": "Hi.", "best_of": 2}),
        ("completions", prompts),
    ):
        told = await posted(served, f"/s/{session['id']}/v1/{path}", body, 400)
        assert "records one answer to one prompt at /v1/" in told["error"]["message"]
    await posted(served, f"/s/{session['id']}/v1/chat/completions", served.body(n=1))
    assert len(await trajectories(served, session["id"])) == 1
    # Elsewhere they are answered, and the trajectory says why it has none.
    await posted(served, "/v1/chat/completions", served.body(n=2), headers={"Caesura-Session": "t"})
    told = await asked(served, "/v1/sessions/t/trajectories", 409)
    assert "the tokens of several answers to one request are not known apart" in str(told)


# -- whose it is, and how long it stays ------------------------------------------------------------


async def test_another_key_sees_nothing(serve_script: Any, clients: Any) -> None:
    engine = RenderedEngine(model)
    keys = [Key("ann"), Key("bob")]
    served = await serve_script(engine, [double], sessions=KeptSessions(BOUNDS), api_key=keys)
    for text, who in (("Hi.", ANN), ("Hello!", BOB)):
        messages = [{"role": "user", "content": text}]
        await chat(served, {"Caesura-Session": "s", **who}, messages)
    anns, bobs = [await trajectories(served, "s", headers=who) for who in (ANN, BOB)]
    assert anns != bobs
    for name, made in (("ann", anns), ("bob", bobs)):
        assert turns_in(made[0], "s") == Counter(engine.computed[tenant_of(name), "s"])

    session = await posted(served, "/v1/sessions", {}, headers=ANN)
    path = f"/v1/sessions/{session['id']}"
    for method, where in (("GET", ""), ("DELETE", ""), ("GET", "/trajectories")):
        await asked(served, path + where, 404, method=method, headers=BOB)
    await posted(served, f"{path}/complete", {"reward": 1}, 404, headers=BOB)
    await posted(served, "/v1/sessions", {"parent": session["id"]}, 404, headers=BOB)
    told = await posted(
        served, f"/s/{session['id']}/v1/chat/completions", served.body(), 404, headers=BOB
    )
    assert told["error"]["code"] == "session_not_found"
    assert (await asked(served, path, headers=ANN))["rewards"] == {}
    await asked(served, path, 401)
    await posted(served, f"/s/{session['id']}/v1/chat/completions", served.body(), 401)


async def test_a_deleted_session_is_gone_with_what_it_has_started(served: Any) -> None:
    session = await posted(served, "/v1/sessions", {})
    child = await posted(served, "/v1/sessions", {"parent": session["id"]})
    for each in (session, child):
        await posted(served, f"/s/{each['id']}/v1/chat/completions", served.body())
    path = f"/v1/sessions/{session['id']}"
    assert len(await trajectories(served, session["id"])) == 2
    for name in ("none", "%C3%BC%E2%82%AC", "a%0Ab"):
        await posted(served, URL(f"/s/{name}/v1/messages", encoded=True), served.body(), 404)
    told = await asked(served, path, method="DELETE")
    assert told == {"id": session["id"], "object": "session.deleted", "deleted": True}
    for each in (session, child):
        await asked(served, f"/v1/sessions/{each['id']}", 404)
        await asked(served, f"/v1/sessions/{each['id']}/trajectories", 404)
        await posted(served, f"/s/{each['id']}/v1/chat/completions", served.body(), 404)
    assert [each.session for each in served.engine.ended_sessions] == [session["id"]]


async def test_without_the_option_nothing_is_recorded(serve_script: Any) -> None:
    engine = RenderedEngine(model)
    served = await serve_script(engine, [double])
    await chat(served, {"Caesura-Session": "s"}, [{"role": "user", "content": "Hi."}])
    assert (engine.logs, engine.computed) == (0, {})
    for method, path in (("GET", "/v1/sessions/s/trajectories"), ("DELETE", "/v1/sessions/s")):
        told = await asked(served, path, 404, method=method)
        assert told["error"]["message"] == (
            "This server keeps no trajectories: start `caesura serve` with --trajectories."
        )
    await posted(served, "/v1/sessions", {}, 404)
    told = await posted(served, "/s/x/v1/chat/completions", served.body(), 404)
    assert told["error"]["code"] == "unknown_url"


async def test_a_session_of_pictures_says_why_it_has_no_trajectory(serve_script: Any) -> None:
    engine = RenderedEngine(model)
    served = await serve_script(engine, sessions=KeptSessions(SessionBounds(tokens=100)))
    await chat(served, {"Caesura-Session": "s"}, [{"role": "user", "content": "Hi." * 99}])
    told = await asked(served, "/v1/sessions/s/trajectories", 409)
    assert told["error"]["code"] == "trajectory_incomplete"
    assert told["error"]["message"] == (
        "The session 's' has no whole trajectory: it has more than 50 tokens, the most that are"
        " kept of one key."
    )


# -- a base URL for each session -------------------------------------------------------------------


async def test_unmodified_clients_land_in_one_session(served: Any, clients: Any) -> None:
    session = await posted(served, "/v1/sessions", {"metadata": {"task": "7"}})
    url = session["base_url"]
    assert url == f"{served.url}/s/{session['id']}/v1"
    oais, claude = clients(url)
    hello: list[Any] = [{"role": "user", "content": "Hello"}]
    answer = await oais.chat.completions.create(model=MODEL, messages=hello)
    hello += [answer.choices[0].message.model_dump(exclude_none=True)]
    hello += [{"role": "user", "content": "And now?"}]
    stream = await oais.chat.completions.create(model=MODEL, messages=hello, stream=True)
    assert [chunk async for chunk in stream]
    assert (await oais.responses.create(model=MODEL, input="Hi.")).output_text
    said = [{"role": "user", "content": "Good day."}]
    about: dict[str, Any] = {"model": MODEL, "max_tokens": 9, "messages": said}
    assert (await claude.messages.create(**about)).content
    assert [each.id async for each in oais.models.list()] == [MODEL]
    other = clients(f"{served.url}/s/{session['id']}")[1]  # as Anthropic writes base URLs
    assert (await other.messages.create(**about)).content
    (trajectory,) = await trajectories(served, session["id"])
    # The first tokens of all prompts are the template's, so that all are branches of one tree.
    assert sources(trajectory) == [
        "prompt sampled user sampled",
        *["prompt sampled"] * 2,
        "sampled",
    ]
    assert trajectory.metadata == {"task": "7"}
    check(trajectory)


async def test_a_reward_stands_in_the_trajectory(served: Any) -> None:
    session = await posted(served, "/v1/sessions", {"metadata": {"task": "7"}})
    chats = f"/s/{session['id']}/v1/chat/completions"
    await posted(served, chats, served.body())
    path = f"/v1/sessions/{session['id']}/complete"
    told = await posted(served, path, {"reward": 1, "metadata": {"grader": "exact"}})
    assert told["rewards"] == {"reward": 1.0} and told["completed_at"] is not None
    rewards = {"exact": 0.5, "style": -1}
    await posted(served, path, {"reward": rewards})
    (trajectory,) = await trajectories(served, session["id"])
    assert trajectory.rewards == trajectory.rollout().rewards == rewards
    assert trajectory.metadata == {"task": "7", "grader": "exact"}
    assert {each.session for each in served.engine.ended_sessions} == {session["id"]}
    told = await posted(served, chats, served.body(), 410)
    assert told["error"]["code"] == "session_completed"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"reward": True}, "reward"),
        ({"reward": "1"}, "reward"),
        ({"reward": {"": 1}}, "reward"),
        ({"reward": {f"r{n}": 1 for n in range(65)}}, "reward"),
        ({"rewards": 1}, "rewards"),
        ({"metadata": {f"k{n}": "v" for n in range(16)}}, "metadata: the session would have 17"),
    ],
)
async def test_what_a_session_cannot_be_completed_with(
    served: Any, body: Any, message: str
) -> None:
    session = await posted(served, "/v1/sessions", {"metadata": {"task": "7"}})
    path = f"/v1/sessions/{session['id']}"
    told = await posted(served, f"{path}/complete", body, 400)
    assert told["error"]["message"].startswith(message)
    told = await asked(served, path)
    assert (told["completed_at"], told["rewards"], told["metadata"]) == (None, {}, {"task": "7"})


async def test_sub_agents_hang_below_their_parents(served: Any) -> None:
    session = await posted(served, "/v1/sessions", {})
    name = session["id"]
    child = await posted(served, "/v1/sessions", {"parent": name})
    agent = {"X-Claude-Code-Session-Id": "c", "X-Claude-Code-Agent-Id": "a1"}
    below = {**agent, "X-Claude-Code-Agent-Id": "a2", "X-Claude-Code-Parent-Agent-Id": "a1"}
    for where, headers in (
        (name, {"X-Claude-Code-Session-Id": "c"}),
        (name, agent),
        (name, below),
        (child["id"], {"Caesura-Session": "another", "Caesura-Parent": "p"} | {"x": "y"}),
        (child["id"], {"Caesura-Session": "another"}),
    ):
        await posted(served, f"/s/{where}/v1/chat/completions", served.body(), headers=headers)
    made = {each.session: each.parent for each in await trajectories(served, name)}
    assert made == {
        name: None,
        child["id"]: name,
        f"{name}/c/a1": name,
        f"{name}/c/a2": f"{name}/c/a1",
        f"{child['id']}/another": child["id"],
    }
    told = await asked(served, f"/v1/sessions/{name}")
    assert told["children"] == [child["id"], f"{name}/c/a1"]
    for of, reward in ((name, 1), (f"{name}/c/a1", {"useful": 0.5})):
        await posted(served, f"/v1/sessions/{of}/complete", {"reward": reward})
    rewards = {each.session: each.reward for each in await trajectories(served, name)}
    assert rewards == {**dict.fromkeys(made), name: 1.0, f"{name}/c/a1": 0.5}
    origins = {each.spec.origin.session: each.spec.origin for each in served.engine.sessions}
    assert origins[child["id"]].parent == name


async def test_agents_that_are_tools_of_the_server_hang_below_too(serve_script: Any) -> None:
    engine = RenderedEngine(model)
    helper = Agent(engine, name="helper", instructions="Help.").as_tool("helper", "It helps.")
    kept = KeptSessions(BOUNDS, one_owner=True)
    served = await serve_script(engine, [helper], sessions=kept)
    messages: list[Any] = [{"role": "user", "content": "Ask the helper."}]
    await chat(served, {"Caesura-Session": "s"}, messages, server_tools=["helper"])
    own, below = await trajectories(served, "s")
    assert sources(own) == ["prompt sampled tool sampled"]
    assert (below.parent, sources(below)) == ("s", ["prompt sampled"])
    assert turns_in(below, below.session) == Counter(
        engine.computed[tenant_of(None), below.session]
    )
    assert kept.tokens == sum(len(each.rollout().ids) for each in (own, below))
