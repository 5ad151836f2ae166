"""Several servers behind one address: a local Ray cluster of several nodes' processes."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest

from caesura.runtime.server.http.returning import SERVER
from tests.kit.waiting import until
from tests.runtime.front.scripted import MODEL, WAIT, scripted_server

ray = pytest.importorskip("ray", reason="needs Ray: pip install -e '.[front]'")
serve = pytest.importorskip("ray.serve", reason="needs Ray Serve: pip install -e '.[front]'")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
SMALL = {"object_store_memory": 80 << 20, "include_dashboard": False}
SERVERS = 3
APP = "caesura"
CHAT = "/v1/chat/completions"


class Nodes:
    """A head with the front, and a node for each server, which can be taken away."""

    def __init__(self, folder: Path) -> None:
        from ray.cluster_utils import Cluster

        from caesura.runtime.front.application import session_app

        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        self.folder = folder
        self.cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, **SMALL})
        self._nodes = [
            self.cluster.add_node(num_cpus=0, resources={"server": 1}, **SMALL)
            for _ in range(SERVERS)
        ]
        self.cluster.wait_for_nodes()
        ray.init(address=self.cluster.address, log_to_driver=False, logging_level="ERROR")
        self.port = free_port()
        serve.start(
            proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": self.port}
        )
        app = session_app(
            partial(scripted_server, folder),
            server_options={
                "num_replicas": SERVERS,
                "ray_actor_options": {"num_cpus": 0, "resources": {"server": 1}},
                "graceful_shutdown_timeout_s": 1,
            },
        )
        serve.run(app, name=APP)

    def kill_node_of(self, server: str) -> None:
        """Kill all processes of the node on which a server runs."""
        found = serve.context._global_client.get_serve_details()
        replicas = found["applications"][APP]["deployments"]["Server"]["replicas"]
        of = {replica["replica_id"]: replica["node_id"] for replica in replicas}
        node = next(each for each in self._nodes if each.node_id == of[server])
        self._nodes.remove(node)
        self.cluster.remove_node(node, allow_graceful=False)

    def close(self) -> None:
        serve.shutdown()
        ray.shutdown()
        self.cluster.shutdown()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    running = Nodes(tmp_path_factory.mktemp("servers"))
    yield running
    running.close()


class Client:
    """A client of the front."""

    def __init__(self, nodes: Nodes) -> None:
        self.http = aiohttp.ClientSession(base_url=f"http://127.0.0.1:{nodes.port}")

    async def post(
        self, path: str, headers: dict[str, str] | None = None, **body: Any
    ) -> tuple[str, dict[str, Any]]:
        """POST a request that succeeds; return its server and its answer."""
        told = {"model": MODEL, **body}
        async with self.http.post(path, json=told, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            return answer.headers[SERVER], await answer.json()

    async def chat(self, *texts: str, **headers: str) -> str:
        """Send a conversation's turns; return the server that answered."""
        roles = ["user", "assistant"] * len(texts)
        messages = [
            {"role": role, "content": text} for role, text in zip(roles, texts, strict=False)
        ]
        server, answer = await self.post(CHAT, headers, messages=messages)
        assert answer["choices"][0]["message"]["content"] == server
        return server


@pytest.fixture
async def client(nodes: Nodes) -> AsyncIterator[Client]:
    opened = Client(nodes)
    yield opened
    await opened.http.close()


async def test_sessions_stay_with_their_servers_and_all_servers_have_some(client: Client) -> None:
    questions = [f"Question {number}?" for number in range(24)]
    first = [await client.chat(each) for each in questions]  # at once, they would be a load
    assert len(set(first)) == SERVERS
    again = [await client.chat(each, "Yes.", "And?") for each in questions]
    assert again == first


async def test_a_named_session_and_a_named_server_return(client: Client) -> None:
    there = {await client.chat("One", **{"X-Session-ID": "mine"}) for _ in range(3)}
    assert len(there) == 1
    servers = {await client.chat(f"Two {number}") for number in range(16)}
    for server in servers:
        assert await client.chat("Three", **{SERVER: server}) == server


async def test_what_continues_a_response_or_a_conversation_goes_to_its_server(
    client: Client,
) -> None:
    for number in range(6):
        server, answer = await client.post("/v1/responses", input=f"Response {number}")
        for _ in range(3):
            next_server, answer = await client.post(
                "/v1/responses", input="And?", previous_response_id=answer["id"]
            )
            assert next_server == server
        async with client.http.get(f"/v1/responses/{answer['id']}") as found:
            assert (found.status, found.headers[SERVER]) == (200, server)
        async with client.http.post("/v1/conversations", json={}) as made:
            conversation, server = (await made.json())["id"], made.headers[SERVER]
        told = await client.post("/v1/responses", input="Hi", conversation=conversation)
        assert told[0] == server


async def test_a_stream_comes_whole_through_the_front(nodes: Nodes, client: Client) -> None:
    async with openai.AsyncOpenAI(
        base_url=f"http://127.0.0.1:{nodes.port}/v1", api_key="any", max_retries=0
    ) as sdk:
        stream = await sdk.responses.create(model=MODEL, input="Hello", stream=True)
        events = [event async for event in stream]
    assert [events[0].type, events[-1].type] == ["response.created", "response.completed"]
    async with client.http.get("/nowhere") as answer:
        assert (answer.status, (await answer.json())["error"]["code"]) == (404, "unknown_url")


async def test_a_client_that_leaves_ends_its_request_in_the_server(
    nodes: Nodes, client: Client
) -> None:
    asking = asyncio.create_task(client.chat(f"{WAIT}leaving"))
    await until((nodes.folder / "leaving.begun").exists)
    asking.cancel()
    await until((nodes.folder / "leaving.cancelled").exists)


async def test_the_sessions_of_a_killed_node_go_elsewhere_and_only_they(
    nodes: Nodes, client: Client
) -> None:
    questions = [f"Before {number}?" for number in range(24)]
    first = [await client.chat(each) for each in questions]  # at once, they would be a load
    body = {"model": MODEL, "messages": [{"role": "user", "content": f"{WAIT}killed"}]}
    asking = asyncio.create_task(client.http.post(CHAT, json=body))
    begun = nodes.folder / "killed.begun"
    await until(lambda: begun.exists() and bool(begun.read_text()))
    killed = begun.read_text()
    nodes.kill_node_of(killed)
    async with await asking as lost:
        assert (lost.status, (await lost.json())["error"]["code"]) == (503, "server_lost")
    again = [await client.chat(each, "Yes.", "And?") for each in questions]
    assert killed not in again and killed in first
    assert all(new == old for new, old in zip(again, first, strict=True) if old != killed)
