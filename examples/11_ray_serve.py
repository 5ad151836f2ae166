"""Two servers behind one address: sessions return to their server, until its node is killed.

    python examples/11_ray_serve.py

It needs the extra `front`. A local Ray cluster has three nodes, which are processes of this
machine: a head with the front, and two nodes with a server each, every one with an engine of its
own and the bundled model. Six sessions ask twice; each comes back to its server. Then one node is
killed (Ray prints the last lines of its log), and the six sessions ask until the other server has
them all. A question that died with its server gets a 503, and is asked again, as OpenAI's client
would do.
"""

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import ray
from ray import serve
from ray.cluster_utils import Cluster

from caesura.runtime.front.application import session_app
from caesura.runtime.launch import start_engine
from caesura.runtime.server import ServerOptions, create_app
from caesura.runtime.server.app import Application
from caesura.tools.calculator.tool import calculator
from caesura.tools.registry import Registry

SERVERS = 2
MOST_ROUNDS, MOST_TRIES = 30, 10
MODEL = "caesura-tiny"
SMALL = {"object_store_memory": 80 << 20, "include_dashboard": False}
ENGINE = ("--kv-cache-memory-bytes", "134217728")
Turns = list[dict[str, str]]


@asynccontextmanager
async def open_server(name: str) -> AsyncIterator[Application]:
    """Open a server: an engine with the bundled model, and a calculator."""
    engine = await start_engine(vllm_args=ENGINE, serves=True)
    try:
        app = create_app(engine, Registry([calculator]), ServerOptions(server_name=name))
        await app.start()
        try:
            yield app
        finally:
            await app.leave()
            await app.close()
    finally:
        await engine.close()


def start(port: int) -> Cluster:
    """Start the cluster and the application; return when all servers are ready."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, **SMALL})
    for _ in range(SERVERS):
        cluster.add_node(num_cpus=0, resources={"server": 1}, **SMALL)
    cluster.wait_for_nodes()
    ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)
    serve.start(proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": port})
    options = {
        "num_replicas": SERVERS,
        "ray_actor_options": {"num_cpus": 0, "resources": {"server": 1}},
    }
    serve.run(session_app(open_server, server_options=options))
    return cluster


async def ask(http: aiohttp.ClientSession, turns: Turns, question: str) -> str:
    """Ask a question behind a session's turns; return the server that answered."""
    turns.append({"role": "user", "content": question})
    body = {"messages": turns, "server_tools": ["calculator"], "max_tokens": 60}
    for _ in range(MOST_TRIES):
        async with http.post("/v1/chat/completions", json={"model": MODEL, **body}) as answer:
            told = await answer.json()
            if answer.status == 503:
                print(f"asked again: {told['error']['code']}", flush=True)
                await asyncio.sleep(float(answer.headers["Retry-After"]))
                continue
            assert answer.status == 200, told
            turns.append({"role": "assistant", "content": told["choices"][0]["message"]["content"]})
            return answer.headers["Caesura-Server"]
    raise RuntimeError(f"no server answered in {MOST_TRIES} tries")


async def talk(cluster: Cluster, port: int) -> None:
    """Ask, kill a node, ask again."""
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http:
        sessions: list[Turns] = [[] for _ in range(6)]

        async def round_of(what: str) -> list[str]:
            asked = (ask(http, s, f"What is {n + 40}*17?") for n, s in enumerate(sessions))
            servers = await asyncio.gather(*asked)
            print(f"{what}: {' '.join(servers)}", flush=True)
            return list(servers)

        first = await round_of("first turn    ")
        second = await round_of("second turn   ")
        assert first == second, "every session came back to its server"
        node = cluster.list_all_nodes()[-1]
        await asyncio.to_thread(cluster.remove_node, node, allow_graceful=False)
        print("killed one server's node", flush=True)
        for _ in range(MOST_ROUNDS):
            # The processes of a dead node live for a moment longer, and may still answer.
            last = await round_of("after the kill")
            if len(set(last)) == 1:
                break
            await asyncio.sleep(1)
        assert len(set(last)) == 1, "all sessions are at the server that is left"
        moved = sum(now != before for now, before in zip(last, second, strict=True))
        print(f"{moved} of {len(sessions)} sessions moved")
        print(sessions[0][-1]["content"])


def main() -> None:
    """Run the cluster while the sessions talk."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    cluster = start(port)  # outside of asyncio: Ray's cluster sets handlers of signals
    try:
        asyncio.run(talk(cluster, port))
    finally:
        serve.shutdown()
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main()
