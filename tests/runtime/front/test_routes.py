"""Which server a request goes to."""

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caesura.runtime.front.asked import asked_in, asked_of
from caesura.scheduler.policy.homes import Bounds, Homes
from caesura.scheduler.policy.names import make_router
from caesura.scheduler.policy.routing import Asked, Load

IDLE = {"a": 0, "b": 0, "c": 0, "d": 0}
CHAT = "/v1/chat/completions"


def loads_of(requests: Mapping[str, float]) -> list[Load]:
    return [Load(count, name=name) for name, count in requests.items()]


def ranked(routes: Homes, asked: Asked, requests: Mapping[str, float]) -> list[str]:
    """Return the names of servers in the order of a router."""
    names = list(requests)
    return [names[place] for place in routes.ranked(asked, loads_of(requests))]


def chat(*texts: str, **fields: object) -> Asked:
    roles = ["user", "assistant"] * len(texts)
    messages = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]
    return asked_of(CHAT, json.dumps({"messages": messages, **fields}).encode())


def test_every_request_of_a_chat_names_the_same_session() -> None:
    first, second, third = (
        chat("Hello"),
        chat("Hello", "Hi!", "And?"),
        chat("Hello", "Hi there!", "And?", "So", "Well"),
    )
    assert first.session == second.session == third.session
    assert not first.turn and second.turn and third.turn
    assert chat("Bye").session != first.session


def test_a_responses_request_names_what_it_continues() -> None:
    def asked(**fields: object) -> Asked:
        return asked_of("/v1/responses", json.dumps(fields).encode())

    assert asked(input="Hi", previous_response_id="resp_1").continues == "resp_1"
    assert asked(input="Hi", conversation="conv_1").continues == "conv_1"
    assert asked(input="Hi", conversation={"id": "conv_1"}).continues == "conv_1"
    assert asked(input="Hi", prompt_cache_key="mine").session == "mine"
    items = [{"role": "user", "content": "Hi"}, {"type": "function_call", "name": "f"}]
    assert asked(input=items).session == asked(input=items[:1]).session != ""
    for path in ("/v1/responses/resp_1", "/v1/responses/resp_1/cancel"):
        assert asked_of(path, b"").continues == "resp_1"
    assert asked_of("/v1/responses/compact", b"{}").continues == ""


def test_headers_name_the_session_and_the_server() -> None:
    for header in ("caesura-session", "x-session-id"):
        told = asked_in(
            {
                "path": CHAT,
                "headers": [(header.encode(), b"mine"), (b"caesura-server", b"b")],
            },
            b'{"messages": []}',
        )
        assert (told.session, told.server) == ("mine", "b")


def test_a_base_url_of_a_session_names_it() -> None:
    headers = [(b"x-session-id", b"mine")]
    for path in ("/s/sess_1/v1/chat/completions", "/s/sess_1/v1/v1/messages"):
        told = asked_in({"path": path, "headers": headers}, b'{"messages": []}')
        assert (told.session, told.continues) == ("sess_1", "sess_1")
    path = "/v1/sessions/sess_1/trajectories"
    assert asked_in({"path": path, "headers": []}, b"").continues == "sess_1"


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b"null", b'{"messages": 3}', b"\xff", b"[" * 9999]
)
def test_a_body_that_tells_nothing_is_no_error(body: bytes) -> None:
    assert asked_of(CHAT, body).continues == ""


@given(
    st.recursive(
        st.none() | st.text() | st.integers(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(["messages", "input", "role", "conversation", "id", "x"]), inner
            )
        ),
    )
)
def test_no_body_breaks_the_reading(data: object) -> None:
    asked_of("/v1/responses", json.dumps(data).encode())


def test_a_session_returns_to_the_server_that_served_it() -> None:
    routes = Homes()
    routes.served(chat("Hello"), "c")
    assert ranked(routes, chat("Hello", "Hi!", "And?"), IDLE)[0] == "c"


def test_routers_that_share_nothing_agree() -> None:
    for number in range(50):
        asked = chat(f"Question {number}")
        assert ranked(Homes(), asked, IDLE) == ranked(Homes(), asked, dict(reversed(IDLE.items())))


def test_new_sessions_spread_over_the_servers() -> None:
    firsts = [ranked(Homes(), chat(f"Question {n}"), IDLE)[0] for n in range(400)]
    assert all(firsts.count(server) > 60 for server in IDLE)


def test_only_sessions_of_a_server_that_is_gone_move() -> None:
    asked = [chat(f"Question {n}") for n in range(200)]
    left = {server: 0 for server in IDLE if server != "b"}
    for each in asked:
        before = ranked(Homes(), each, IDLE)[0]
        after = ranked(Homes(), each, left)[0]
        assert after == before or before == "b"


def test_an_overloaded_server_hands_its_session_on_and_the_session_stays_there() -> None:
    routes = Homes(Bounds(shared=True))
    asked = chat("Hello")
    routes.served(asked, "c")
    loaded = {**IDLE, "c": 40}
    second = ranked(routes, asked, loaded)[0]
    assert second != "c" and ranked(routes, asked, loaded)[-1] == "c"
    routes.served(asked, second)
    assert ranked(routes, asked, IDLE)[0] == second


def test_small_differences_of_load_move_no_session() -> None:
    routes = Homes()
    routes.served(chat("Hello"), "c")
    assert ranked(routes, chat("Hello", "Hi!", "And?"), {**IDLE, "c": 4})[0] == "c"


def test_what_continues_an_answer_waits_for_its_server_unless_the_store_is_shared() -> None:
    asked = Asked(continues="resp_1")
    loaded = {**IDLE, "c": 400}
    apart, together = Homes(), Homes(Bounds(shared=True))
    for routes in (apart, together):
        routes.served(asked, "c")
    assert ranked(apart, asked, loaded) == ["c"]
    assert ranked(together, asked, loaded)[0] != "c"
    apart.gone("c")
    left = {server: 0 for server in IDLE if server != "c"}
    assert set(ranked(apart, asked, left)) == set(left)


def test_the_server_that_the_client_names_is_asked_first() -> None:
    routes = Homes()
    routes.served(chat("Hello"), "c")
    assert ranked(routes, replace(chat("Hello"), server="d"), IDLE)[0] == "d"
    assert ranked(routes, replace(chat("Hello"), server="x"), IDLE)[0] == "c"


def test_a_new_session_goes_where_the_beginning_of_its_prompt_is() -> None:
    shared = "".join(f"Rule {number}: be brief. " for number in range(400))
    routes = Homes()
    routes.served(chat(shared + "What is 2 + 2?"), "d")
    assert ranked(routes, chat(shared + "What is 3 + 3?"), IDLE)[0] == "d"
    other = chat(shared[:1500] + "x" * 20_000)
    assert ranked(routes, other, IDLE) == ranked(Homes(), other, IDLE)
    assert ranked(routes, chat(shared + "What is 4?"), {**IDLE, "d": 20})[-1] == "d"


def test_requests_without_a_session_go_to_the_least_loaded() -> None:
    assert ranked(Homes(), Asked(), {"a": 3, "b": 1, "c": 2})[0] == "b"


def test_a_server_that_is_gone_is_forgotten() -> None:
    routes = Homes()
    routes.served(chat("Hello"), "c")
    routes.gone("c")
    assert ranked(routes, chat("Hello"), IDLE) == ranked(Homes(), chat("Hello"), IDLE)


@given(
    loads=st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 60), min_size=1),
    text=st.text(max_size=4),
)
def test_every_server_is_ranked_once_and_the_first_is_not_overloaded(
    loads: dict[str, int], text: str
) -> None:
    bounds = Bounds(slack=0)
    order = ranked(Homes(bounds), chat(text), loads)
    assert sorted(order) == sorted(loads)
    assert loads[order[0]] <= bounds.factor * (sum(loads.values()) + 1) / len(loads)


def test_the_memory_is_bounded() -> None:
    routes = Homes(Bounds(max_sessions=3))
    for number in range(5):
        routes.served(Asked(session=str(number)), "d")
    forgotten = [n for n in range(5) if ranked(Homes(), Asked(session=str(n)), IDLE)[0] != "d"]
    now = [n for n in forgotten if ranked(routes, Asked(session=str(n)), IDLE)[0] == "d"]
    assert set(now) <= {2, 3, 4} and now


@pytest.mark.parametrize("wrong", [{"factor": 0.9}, {"slack": -1}, {"max_sessions": 0}])
def test_bounds_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="at least"):
        Bounds(**wrong)  # type: ignore[arg-type]


def test_the_simulated_front_chooses_what_the_front_that_serves_chooses() -> None:
    """Both are asked the same at the same loads; `simulate` makes its router by name."""
    serving, simulated = Homes(), make_router("front")
    shared = "Rule: be brief. " * 200
    loads = loads_of({"a": 3, "b": 0, "c": 9, "d": 1})
    chosen = set()
    for number in range(60):
        asked = chat(shared[: 150 * number] + f"Question {number % 7}")
        place = simulated.choose(asked, loads)
        assert place == serving.ranked(asked, loads)[0]
        chosen.add(place)
        for router in (serving, simulated):
            router.served(asked, loads[place].name)
        loads[place].requests += 1
    assert len(chosen) > 1
    assert type(simulated) is Homes
