"""Trainers' own loops over a server and an agent. Each test runs where its package is."""

import asyncio
import importlib
import json
import os
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from caesura import Agent, ScriptedEngine, UsageError
from caesura.runtime.launch import BUNDLED_MODEL
from caesura.runtime.testing import Item, call, say
from caesura.runtime.trajectories.kept import KeptSessions, SessionBounds
from caesura.trajectories import fetch, fill_trace, tokens_from, trl_reward, trl_rollouts, trl_tools
from tests.clients.servers import started
from tests.kit.rendered import RenderedEngine
from tests.kit.trainers import needs

pytestmark = pytest.mark.filterwarnings("ignore")


def model(messages: Any, tools: Any) -> Item:
    """Call the tool for a number, and answer everything else."""
    last = messages[-1]
    if last["role"] == "user" and "double" in last["content"]:
        return call("double", number=int(last["content"].split()[-1]))
    return say(f"{len(messages)} messages.")


@pytest.fixture
async def served(serve_script: Any) -> Any:
    engine = RenderedEngine(model)
    return await serve_script(engine, sessions=KeptSessions(SessionBounds(), one_owner=True))


def computed(served: Any) -> dict[str, list[tuple[tuple[int, ...], tuple[int, ...]]]]:
    """What the engine has computed of each session: contexts, and what it sampled behind them."""
    return {name: turns for (_, name), turns in served.engine.computed.items()}


# -- verifiers ---------------------------------------------------------------------------------


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Any:
    needs("verifiers.v1")
    from verifiers.v1.utils.loaders import load_environment, resolve_env_config

    doubles = importlib.import_module("tests.kit.verifiers_doubles")
    monkeypatch.setitem(sys.modules, "caesura_doubles", doubles)
    seat = {"runtime": {"type": "subprocess"}}
    return load_environment(
        resolve_env_config({"taskset": {"id": "caesura_doubles"}, "agent": seat})
    )


async def test_an_environment_of_verifiers_has_the_tokens_of_its_sessions(
    served: Any, environment: Any
) -> None:
    from verifiers.v1.clients import EvalClientConfig, ModelContext

    base = f"{served.url}/v1"
    client = EvalClientConfig(base_url=base, api_key_var="CAESURA_KEY")
    context = ModelContext(model=served.engine.model, client=client)
    async with environment.serving():
        slots = [slot for task in environment.taskset for slot in environment.slots(task, 2)]
        episodes = await asyncio.gather(
            *(environment.run_slot(each, context, on_complete=tokens_from(base)) for each in slots)
        )
    turns = computed(served)
    assert [each.errors for each in episodes] == [[]] * 4
    for trace in (trace for each in episodes for trace in each.traces):
        assert [each.message.role for each in trace.nodes if each.sampled] == ["assistant"] * 4
        assert [each.node for each in trace.calls] == [
            place for place, node in enumerate(trace.nodes) if node.sampled
        ]
        ways = [way_to(trace.nodes, each.node) for each in trace.calls]
        assert [[token for each in way for token in each.token_ids] for way in ways] == [
            [*prompt, *sampled] for prompt, sampled in turns[trace.id]
        ]
        assert [
            [token for token, bit in zip(node.token_ids, node.mask, strict=True) if bit]
            for node in (way[-1] for way in ways)
        ] == [list(sampled) for _, sampled in turns[trace.id]]
        assert not any(bit for node in trace.nodes if not node.sampled for bit in node.mask)
        assert len(trace.branches) == 2 and trace.branches[0].messages[1].tool_calls
        async with served.http.get(f"/v1/sessions/{trace.id}") as answer:
            told = await answer.json()
        assert told["rewards"] == {"reward": 1.0} and told["completed_at"]


def way_to(nodes: Sequence[Any], place: int | None) -> list[Any]:
    """The nodes up to one of a trace, from the root."""
    way: list[Any] = []
    while place is not None:
        way.insert(0, nodes[place])
        place = nodes[place].parent
    return way


async def test_a_trace_whose_tokens_are_others_is_refused(served: Any, environment: Any) -> None:
    from verifiers.v1.clients import EvalClientConfig, ModelContext

    base = f"{served.url}/v1"
    client = EvalClientConfig(base_url=base, api_key_var="CAESURA_KEY")
    context = ModelContext(model=served.engine.model, client=client)
    async with environment.serving():
        (slot, *_) = environment.slots(next(iter(environment.taskset)))
        (trace,) = (await environment.run_slot(slot, context)).traces
    before = [each.model_dump() for each in trace.nodes]
    trace.calls[2].usage.completion_tokens += 1
    with pytest.raises(UsageError, match="has no turn for a call of its trace of"):
        fill_trace(trace, await fetch(base, trace.id))
    assert [each.model_dump() for each in trace.nodes] == before
    with pytest.raises(UsageError, match="404 There is no session"):
        await fetch(base, "unknown")


# -- rLLM --------------------------------------------------------------------------------------


async def test_the_gateway_client_of_rllm_reads_the_traces(served: Any) -> None:
    gateway = needs("rllm_model_gateway")
    openai = importlib.import_module("openai")
    async with gateway.AsyncGatewayClient(f"{served.url}/v1") as client:
        name = await client.create_session("task-17:0", metadata={"task": "17"})
        assert name == "task-17:0" and await client.create_session(name) == name
        base = client.get_session_url(name)
        async with openai.AsyncOpenAI(base_url=base, api_key="any") as agent:
            for text in ("Hi.", "Bye."):
                messages = [{"role": "user", "content": text}]
                await agent.chat.completions.create(model=served.engine.model, messages=messages)
        traces = await client.get_session_traces(name)
        assert [
            (tuple(each.prompt_token_ids), tuple(each.completion_token_ids)) for each in traces
        ] == computed(served)[name]
        assert {each.session_id for each in traces} == {name}
        assert [each.finish_reason for each in traces] == ["stop", "stop"]
        info = await client.get_session_info(name)
        assert info["session_id"] == name and info["metadata"] == {"task": "17"}
        (last,) = await client.get_session_traces(name, since=traces[1].timestamp)
        assert last == traces[1]
        assert await client.get_session_traces(name, limit=1) == traces[:1]
        other = await client.create_session()
        assert await client.get_session_traces(other) == []
        assert await client.delete_session(name) == 1
        with pytest.raises(Exception, match="404"):
            await client.get_session_traces(name)


# -- the real engine -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of the bundled model, which the Python in CAESURA_SERVER_PYTHON runs."""
    if (python := os.environ.get("CAESURA_SERVER_PYTHON")) is None:
        pytest.skip("CAESURA_SERVER_PYTHON names no Python that has vLLM")
    arguments = (
        *("-m", "caesura", "serve", "--served-model-name", "tiny", "--no-calibrate", "--no-trace"),
        *("--trajectories", "--port", "{port}"),
    )
    folder = tmp_path_factory.mktemp("serving")
    with started("trainers", arguments, folder, {}, python) as url:
        yield url


async def test_both_gateways_of_rllm_tell_the_same_of_the_real_engine(serving: str) -> None:
    """Its own, in front of the server, asks for each answer's token ids."""
    gateway = needs("rllm_model_gateway")
    server, models = (needs(f"rllm_model_gateway.{name}") for name in ("server", "models"))
    openai = importlib.import_module("openai")
    workers = [models.WorkerConfig(url=serving)]
    config = models.GatewayConfig(store_worker="memory", sync_traces=True, workers=workers)
    told = []
    async with listening(server.create_app(config)) as own:
        for url in (own, f"{serving}/v1"):
            async with gateway.AsyncGatewayClient(url) as client:
                name = await client.create_session()
                base = client.get_session_url(name)
                async with openai.AsyncOpenAI(base_url=base, api_key="any") as agent:
                    await calculate(agent)
                told.append(await client.get_session_traces(name))
    first, second = (
        [(each.prompt_token_ids, each.completion_token_ids, each.finish_reason) for each in traces]
        for traces in told
    )
    assert first == second
    assert [reason for *_, reason in first] == ["tool_calls", "stop"] and all(first[0][:2])


class Listener(uvicorn.Server):
    """A server that says when it listens."""

    def __init__(self, app: Any) -> None:
        super().__init__(uvicorn.Config(app, port=0, log_level="warning"))
        self.listens = asyncio.Event()

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self.listens.set()


@asynccontextmanager
async def listening(app: Any) -> AsyncIterator[str]:
    """Serve an application of another program on a free port; yield its address."""
    listener = Listener(app)
    async with asyncio.TaskGroup() as group:
        group.create_task(listener.serve())
        await listener.listens.wait()
        yield f"http://127.0.0.1:{listener.servers[0].sockets[0].getsockname()[1]}"
        listener.should_exit = True


async def calculate(client: Any) -> None:
    """Let the bundled model call a tool that this client runs."""
    parameters = {"type": "object", "properties": {"expression": {"type": "string"}}}
    function = {"name": "calculator", "description": "Calculate.", "parameters": parameters}
    tools = [{"type": "function", "function": function}]
    messages: list[Any] = [{"role": "user", "content": "What is 12 * 7?"}]
    for _ in range(2):
        told = await client.chat.completions.create(
            model="tiny", messages=messages, tools=tools, temperature=0
        )
        messages.append(told.choices[0].message.model_dump(exclude_none=True))
        for each in told.choices[0].message.tool_calls or ():
            messages.append({"role": "tool", "tool_call_id": each.id, "content": "84"})


async def test_an_environment_of_verifiers_runs_on_the_real_engine(
    serving: str, environment: Any
) -> None:
    from verifiers.v1.clients import EvalClientConfig, ModelContext

    base = f"{serving}/v1"
    client = EvalClientConfig(base_url=base, api_key_var="CAESURA_KEY")
    async with environment.serving():
        (slot,) = environment.slots(next(iter(environment.taskset)))
        context = ModelContext(model="tiny", client=client)
        (trace,) = (await environment.run_slot(slot, context, on_complete=tokens_from(base))).traces
    (trajectory,) = await fetch(base, trace.id)
    wanted = [trajectory.rollout(each.branch, own=False) for each in trajectory.rollouts()]
    assert sorted(each.token_ids for each in trace.branches) == sorted(
        list(each.ids) for each in wanted
    )
    assert [sum(node.mask) for node in trace.nodes if node.sampled] == [
        each.usage.completion_tokens for each in trace.calls
    ]


# -- TRL ---------------------------------------------------------------------------------------


class Doubler:
    """A TRL environment."""

    def __init__(self) -> None:
        self.called: list[int] = []

    def reset(self, number: int, **row: Any) -> str:
        self.called = []
        self.number = number
        return f" double {number}"

    def double(self, number: int) -> str:
        """Double a number.

        Args:
            number: what to double
        """
        self.called.append(number)
        return str(2 * number)

    def get_reward(self) -> float:
        """1 for the wanted call."""
        return float(self.called == [self.number])


ROWS = [{"prompt": "Please:", "number": 7}, {"prompt": "Now:", "number": 12}]


def doubling_agent() -> Agent[str, Any]:
    def odd(messages: Any, tools: Any) -> Item:
        if messages[-1]["role"] == "user":
            number = int(messages[-1]["content"].split()[-1])
            return call("double", number=number if number == 7 else 0)
        return say("Done.")

    return Agent(ScriptedEngine(odd), trl_tools(Doubler), trajectories=True)


def test_an_environment_of_trl_is_run_by_an_agent() -> None:
    agent = doubling_agent()
    assert [each.name for each in agent.tools] == ["double"]
    schema = agent.tools[0].spec()["function"]["parameters"]
    assert schema["properties"]["number"] == {"type": "integer", "description": "what to double"}
    rollout = trl_rollouts(agent, Doubler, rows=ROWS)
    made = rollout([row["prompt"] for row in ROWS for _ in range(2)], None)
    assert made["reward"] == [1.0, 1.0, 0.0, 0.0]
    assert [sum(mask) < len(mask) for mask in made["env_mask"]] == [True] * 4  # results stand in it
    assert trl_reward(completions=[], **made) == made["reward"]


@pytest.mark.parametrize("prompt", [[{"role": "system", "content": "Be brief."}], 5])
def test_prompts_that_an_agent_does_not_take_are_told(prompt: Any) -> None:
    with pytest.raises(UsageError, match="must be a text or one message of a user"):
        trl_rollouts(doubling_agent())([prompt], None)


def test_tools_need_a_class_with_methods() -> None:
    with pytest.raises(UsageError, match="takes the class of an environment, got"):
        trl_tools(Doubler())  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="has no public method that could be a tool"):
        trl_tools(object)


def test_trl_trains_on_what_an_agent_did_in_an_environment(tmp_path: Path) -> None:
    trl = needs("trl")
    datasets = needs("datasets")
    config = trl.GRPOConfig(
        output_dir=str(tmp_path),
        per_device_train_batch_size=4,
        num_generations=2,
        max_steps=1,
        report_to=[],
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        save_strategy="no",
        logging_steps=1,
    )
    rollout = trl_rollouts(doubling_agent(), Doubler, rows=ROWS)
    given: list[dict[str, Any]] = []
    trainer = trl.GRPOTrainer(
        model=BUNDLED_MODEL,
        reward_funcs=[trl_reward],
        rollout_func=lambda *asked: given.append(rollout(*asked)) or given[-1],
        args=config,
        train_dataset=datasets.Dataset.from_list(ROWS),
    )
    trainer.train()
    told = trainer.state.log_history[0]
    assert told["rewards/trl_reward/mean"] == 0.5
    (made,) = given
    sampled = [sum(mask) for mask in made["env_mask"]]
    assert told["completions/mean_length"] == sum(sampled) / len(sampled)
    assert json.loads(json.dumps(made)) == made
