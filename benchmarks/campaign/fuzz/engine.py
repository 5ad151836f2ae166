"""Plans, control messages and texts of calls: what reaches the engine's process and the reader."""

import itertools
from collections.abc import Iterator
from random import Random
from typing import Any

from vllm.exceptions import VLLMValidationError
from vllm.v1.serial_utils import MsgpackEncoder

from caesura.intercept.calls.vocabulary import Vocabulary
from caesura.intercept.calls.watch import Watch, WatchPlan
from caesura.scheduler.vllm.wire import WATCH_KEY
from tests.formats.cases import ANCHORED, CASES, TOOLS, expressible, written
from tests.formats.rendering import RENDER
from tests.formats.world import MARKERS, StandIn, decode, row_of, stand_in
from tests.scheduler.world import BYTES, END, Session, World, make_scheduler

from .values import TEXTS, mutated

PLANS: list[dict[str, Any]] = [
    WatchPlan(("hermes",), ("calc", "search"), ("stop",)).to_wire(),
    WatchPlan(("inline",), ("calc",), (), "begun").to_wire(),
    WatchPlan(("qwen3_coder",), ("calc",), (), "holding", thinking="<think>").to_wire()
    | {"pauses": {"calc": [1.0, None, False]}},
]
CONTROLS: list[Any] = [
    {"command": "state"},
    {"command": "facts"},
    {"command": "samples"},
    {"command": "measure", "on": True},
    {"command": "measure", "on": False},
    {"command": "expect_pause", "request": "a-1", "seconds": 3.0},
    {"command": "calibrate", "cost": {"base": 0.01, "per_token": 1e-4, "saturation": 64}},
    "state",
]
CALL_TEXTS = ("[calc(1) ->", '<tool_call>{"name": "calc"', "</tool_call>", "stop", "<think>", "x")


def plan(rng: Random) -> Iterator[str]:
    """Read a plan, and watch a turn with it; yields what is wrong."""
    wire = mutated(rng.choice(PLANS), rng)
    try:
        made = WatchPlan.from_wire(wire)
    except ValueError as error:
        if len(str(error)) > 2000:
            yield f"an error of {len(str(error))} characters for {wire!r:.200}"
        return
    if WatchPlan.from_wire(made.to_wire()) != made:
        yield f"a plan changes on the wire: {wire!r:.300}"
    text = "".join(rng.choice(CALL_TEXTS) for _ in range(rng.randrange(8)))
    Watch(made, BYTES, frozenset({END})).first_stop([*text.encode(), END])


class Told:
    """A scheduler with requests, to which messages and plans are sent."""

    def __init__(self, rng: Random) -> None:
        """Start a scheduler."""
        self.rng = rng
        self.world = World(make_scheduler(blocks=60, max_model_len=320, host_blocks=20))
        self.encoder = MsgpackEncoder()
        self.sent = 0

    def control(self) -> Iterator[str]:
        """Send a control message; its answer must be one that can leave the engine."""
        command = mutated(self.rng.choice(CONTROLS), self.rng)
        reply = self.world.parts.commands.run(command)
        try:
            self.encoder.encode(reply)
        except (OverflowError, TypeError, ValueError) as error:
            yield f"the reply to {command!r:.300} cannot be sent: {error!r}"

    def watched(self) -> Iterator[str]:
        """Run a request with a hostile plan beside an honest one."""
        world, rng = self.world, self.rng
        self.sent += 1
        index = self.sent
        honest = world.plain(f"honest-{index}", range(index * 9, index * 9 + 20), "zz")
        wire = mutated(rng.choice(PLANS), rng)
        text = "".join(rng.choice(CALL_TEXTS) for _ in range(4))
        hostile = Session(f"x-{index}", list(range(20)), [[*text.encode(), END]])
        world.sessions[hostile.request_id] = hostile
        extra = {WATCH_KEY: wire}
        try:
            request = world._request(hostile.request_id, hostile.prompt, True, None, 1000, extra)
        except VLLMValidationError as error:
            hostile.finished = True
            if not _beyond_64_bits(wire):
                yield f"vLLM refuses the plan {wire!r:.300}: {error}"
        else:
            world.scheduler.add_request(request)
        for _ in range(40):
            world.step()
            if honest.finished and (hostile.finished or hostile.paused):
                break
        if honest.delivered != honest.parts[0]:
            yield f"a request beside the plan {wire!r:.300} got {honest.delivered}"
        world.abort(hostile)  # one without a valid plan waits for more input, as stock sessions do
        for _ in range(3):
            world.step()
            world.drain()
        world.sessions.clear()

    def rests(self) -> Iterator[str]:
        """Come to rest; nothing may be left."""
        world = self.world
        for _ in range(5):
            world.now += 1e6
            world.step()
            world.drain()
        if world.scheduler.requests or world.parts.served:
            yield f"requests are left: {list(world.scheduler.requests)}"
        pool = world.scheduler.kv_cache_manager.block_pool
        if pool.get_num_free_blocks() != pool.num_gpu_blocks - 1:
            yield f"{pool.get_num_free_blocks()} of {pool.num_gpu_blocks - 1} blocks are free"


def _beyond_64_bits(value: Any) -> bool:
    """Return whether a number cannot travel to the engine: vLLM answers such a request with 400."""
    if isinstance(value, dict):
        return _beyond_64_bits([*value, *value.values()])
    if isinstance(value, list):
        return any(map(_beyond_64_bits, value))
    return isinstance(value, int) and not -(2**63) <= value < 2**64


def call_text(rng: Random) -> Iterator[str]:
    """Write calls, break the text, cut it into tokens: watch and reader must agree."""
    name = rng.choice(list(RENDER))
    model = stand_in(name)
    cases = [case for case in CASES.values() if expressible(name, case)]
    text = _broken(written(name, rng.choice(cases)), name, rng)
    spelled = name != "harmony" and rng.random() < 0.5
    tokens = _tokens(model, text, spelled)
    whole = decode(model, tokens, TOOLS, len(tokens) + 1)
    parts = decode(model, tokens, TOOLS, rng.randint(1, 9))
    # In formats that are calls from their first character on, a call before a broken one is told
    # or not, as it was cut: it is told before the rest is there.
    if name not in ANCHORED and _once(parts.summary) != _once(whole.summary):
        yield f"{name}: {text!r} is {parts.summary} in parts and {whole.summary} in one"
    if (parts.read, parts.verdict) != (whole.read, whole.verdict):
        yield f"{name}: {text!r} stops at {parts.read} in parts and {whole.read} in one"
    if spelled:
        yield from _cut_elsewhere(name, text, model, rng)


def _once(summary: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Count a list of calls that cannot be read once.

    It is told for each of its calls that was announced, and these depend on how the text was cut.
    """
    grouped = [(part, len(list(same))) for part, same in itertools.groupby(summary)]
    return [one for one, n in grouped for _ in range(1 if one[0] == "malformed" else n)]


def _tokens(model: StandIn, text: str, spelled: bool) -> list[int]:
    return model.spelled(text) if spelled else model.by_bytes(text)


def _broken(text: str, name: str, rng: Random) -> str:
    for _ in range(rng.choice([0, 1, 1, 2, 4])):
        place = rng.randrange(len(text) + 1)
        kind = rng.randrange(4)
        if kind == 0:
            text = text[:place] + text[place + rng.randint(1, 5) :]
        elif kind == 1:
            texts = [one for one in TEXTS if len(one) < 400 and one.isascii()]
            text = text[:place] + rng.choice([*MARKERS[name], *texts]) + text[place:]
        elif kind == 2:
            text = text[:place] + text[place:][::-1][:10] + text[place:]
        else:
            text = text + text[: rng.randrange(len(text) + 1)]
    return text


def _cut_elsewhere(name: str, text: str, model: StandIn, rng: Random) -> Iterator[str]:
    """The engine's verdict falls on the same byte, however the bytes are cut into tokens."""
    data = text.encode()
    names = tuple(each["function"]["name"] for each in TOOLS)
    made = WatchPlan((row_of(name),), names)
    cuts = sorted({0, len(data), *(rng.randrange(len(data) + 1) for _ in range(12))})
    parts = [data[a:b] for a, b in itertools.pairwise(cuts)]
    single = Watch(made, Vocabulary([b"", *(bytes([one]) for one in data)]), frozenset({0}))
    joined = Watch(made, Vocabulary([b"", *parts]), frozenset({0}))
    bytewise = single.first_stop([*range(1, len(data) + 1), 0])
    partwise = joined.first_stop([*range(1, len(parts) + 1), 0])
    if (bytewise is None) != (partwise is None):
        yield f"{name}: {text!r} stops at {bytewise} by bytes and {partwise} in parts {cuts}"
    elif bytewise is not None and partwise is not None:
        ends = [*cuts[1:], len(data) + 1]
        expected = next(i for i, edge in enumerate(ends) if edge > bytewise[0])
        if (expected, bytewise[1]) != partwise:
            yield f"{name}: {text!r}: {bytewise} by bytes, {partwise} in parts {cuts}"
