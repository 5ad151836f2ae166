"""Pauses on models with several kinds of layers: no token differs from a run without pauses.

A text is compared with what the model says to the same tokens from scratch. In bfloat16, which the
kernels of DeltaNet need, a chunk rounds differently from single tokens. There it is compared with a
run without pauses that is computed in the same chunks. In a small pool many requests share a step,
which rounds differently again, so that their log probabilities are compared (`alike.apart`).
"""

import random
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from vllm.distributed.kv_transfer import get_kv_transfer_group
from vllm.utils.math_utils import cdiv
from vllm.v1.kv_cache_interface import MambaSpec, UniformTypeKVCacheSpecs

from tests.scheduler.whims import Whims

from .alike import ALIKE, RIVALS, AsyncChunkRecorder, ChunkRecorder, apart, say_alike
from .core import Core, streams_of_cpu
from .families import FAMILIES, KINDS, VOCABULARY, WINDOW, Family, model_of, table
from .follow_up_counts import CALL, STOP, forced
from .swapping import swap_out, swapping_all

pytestmark = pytest.mark.engine

STOPS = range(3, VOCABULARY, 8)
"""Whatever a model says, it soon says one of these, and pauses."""


@dataclass
class Talk:
    """A session as it went: its prompt, what it said, the results, and the chunks of each turn."""

    prompt: list[int]
    results: list[list[int]]
    handling: str = "preserve"
    said: list[list[int]] = field(default_factory=list)
    scores: list[list[dict[int, float]]] = field(default_factory=list)
    """The log probabilities of the best tokens at each place."""
    ends: list[list[int]] = field(default_factory=list)
    resumes: list[str] = field(default_factory=list)
    """How the KV of each pause was handled, as the engine reports it."""

    def context(self, turn: int) -> list[int]:
        """Return all tokens before what was said in this turn."""
        tokens = list(self.prompt)
        for said, result in zip(self.said[:turn], self.results[:turn], strict=True):
            tokens += said + result
        return tokens


def draw(seed: int, handling: str = "preserve", pauses: int = 3) -> Talk:
    rng = random.Random(seed)
    prompt, *results = (
        [rng.randrange(8, VOCABULARY) for _ in range(rng.randint(*length))]
        for length in [(80, 200), *[(5, 90)] * pauses]
    )
    return Talk(prompt, results, handling)


def talk(core: Core, talks: Mapping[str, Talk]) -> None:
    """Run sessions to their end; in each pause the KV of a session is kept, dropped, or lost."""
    core.scheduler.reset_prefix_cache()
    pauses = max(len(one.results) for one in talks.values())
    for turn in range(pauses + 1):
        for name, one in talks.items():
            tokens = [one.said[-1][-1], *one.results[turn - 1]] if turn else one.prompt
            last = turn == pauses
            stops = () if last else STOPS
            core.add(name, tokens, 20 if last else 200, stops, resumable=True, logprobs=RIVALS)
        core.run(talks)
        for name, one in talks.items():
            one.said.append(core.said[name])
            one.scores.append(core.scores[name])
            one.ends.append(core.scheduler.ends[name])
            if turn:
                one.resumes.append(core.reports[name]["resume"]["handling"])
            if turn < pauses and one.handling in ("discard", "evict"):
                core.drop_kv(name)
        core.idle(2)  # the step ahead ends, so that nothing is in use any more
        if turn < pauses and "swap" in {one.handling for one in talks.values()}:
            swap_out(core, get_kv_transfer_group()._worker._copier)
        for name, one in talks.items():
            if turn < pauses and one.handling == "lost":
                lose_states(core, name)
        if turn < pauses and "evict" in {one.handling for one in talks.values()}:
            assert core.scheduler.reset_prefix_cache()
    assert core.scheduler.requests == {}


def lose_states(core: Core, name: str) -> None:
    """Overwrite a paused request's recurrent states, as another request would."""
    layers = core.config.compilation_config.static_forward_context
    groups = core.scheduler.kv_cache_config.kv_cache_groups
    held = core.scheduler.kv_cache_manager.get_block_ids(name)
    for group, blocks in zip(groups, held, strict=True):
        if isinstance(group.kv_cache_spec, MambaSpec):
            for layer in group.layer_names:
                for states in layers[layer].kv_cache:
                    states[blocks] = 0


def differing(core: Core, dtype: str, talks: Mapping[str, Talk]) -> list[tuple[str, int]]:
    """Return the sessions and turns whose text is not that of a run without pauses."""
    found = []
    for name, one in talks.items():
        for turn, said in enumerate(one.said):
            context = one.context(turn)
            core.idle(2)  # until the step ahead of the last request's end is over
            if dtype == "float32":
                expected = core.say(context, len(said))
            else:
                expected = say_alike(core, context, len(said), one.ends[turn])
            if said != expected:
                found.append((name, turn))
    return found


def apart_from_alone(core: Core, talks: Mapping[str, Talk]) -> list[float]:
    """Return how far each turn of each session is from what the model says alone."""
    found = []
    for one in talks.values():
        for turn, said in enumerate(one.said):
            core.idle(2)
            found.append(apart(core, one.context(turn), said, one.scores[turn], one.ends[turn]))
    return found


@dataclass(frozen=True)
class Engine:
    """A family's engine, as it was started."""

    core: Core
    family: Family
    asynchronous: bool

    @property
    def keeps(self) -> bool:
        """Whether KV is held over a pause."""
        return not self.core.scheduler.parts.port.layout.discards


SMOKE = [(name, True, family.caches_prefixes, 512) for name, family in FAMILIES.items()]
THOROUGH = [
    (name, asynchronous, prefix_caching, budget)
    for name, family in FAMILIES.items()
    for asynchronous, prefix_caching, budget in [
        (False, True, 512),
        (False, False, 48),
    ]
    if family.caches_prefixes or not prefix_caching
]


def name_of(case: tuple[str, bool, bool, int]) -> str:
    name, asynchronous, prefix_caching, budget = case
    scheduling = "async" if asynchronous else "sync"
    return f"{name}-{scheduling}-{'cache' if prefix_caching else 'no-cache'}-{budget}"


@pytest.fixture(
    scope="module",
    params=[*SMOKE, *(pytest.param(case, marks=pytest.mark.slow) for case in THOROUGH)],
    ids=[*map(name_of, SMOKE), *map(name_of, THOROUGH)],
)
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    name, asynchronous, prefix_caching, budget = request.param
    family = FAMILIES[name]
    if not family.runs_here:
        pytest.skip(f"vLLM's CPU build: {family.refused or family.needs + ' is missing'}")
    with streams_of_cpu() if asynchronous else nullcontext():
        core = Core(
            model=model_of(name),
            asynchronous=asynchronous,
            dtype=family.dtype,
            scheduler_cls=AsyncChunkRecorder if asynchronous else ChunkRecorder,
            enable_prefix_caching=prefix_caching,
            max_num_batched_tokens=budget,
            max_num_seqs=16,
            kv_transfer_config={
                "kv_connector": "CaesuraConnector",
                "kv_connector_module_path": "caesura.scheduler.vllm",
                "kv_role": "kv_both",
                "kv_connector_extra_config": {"host_gib": 0.05},
            },
            additional_config={"caesura": {"formats": ["hermes"]}},
            compilation_config={"custom_ops": ["-rotary_embedding"] if family.plain_rotary else []},
        )
        yield Engine(core, family, asynchronous)
        core.close()


def test_the_table_of_the_docs_is_that_of_the_families() -> None:
    """`python -m tests.engine.families` prints it."""
    page = Path(__file__).parents[2] / "docs" / "reference" / "model-families.md"
    lines = page.read_text().splitlines()
    begin = lines.index(table()[0])
    assert lines[begin : begin + len(FAMILIES) + 2] == table()


def test_an_engine_is_as_the_docs_tell(engine: Engine) -> None:
    scheduler, family = engine.core.scheduler, engine.family
    assert scheduler.connector.planner is not None
    assert scheduler.connector.planner.works
    assert engine.keeps
    if engine.core.config.cache_config.enable_prefix_caching or not family.alone:
        assert scheduler.parts.follow_ups.enabled is engine.keeps
    groups = []
    for group in engine.core.scheduler.kv_cache_config.kv_cache_groups:
        spec = group.kv_cache_spec
        assert not isinstance(spec, UniformTypeKVCacheSpecs)
        groups.append(KINDS[type(spec).__name__])
    assert tuple(groups) == family.groups


def test_a_pause_changes_no_token(engine: Engine) -> None:
    """One session keeps its KV over its pause, another loses it."""
    talks = {how: draw(seed, how, 1) for seed, how in enumerate(["preserve", "discard"])}
    talk(engine.core, talks)
    kept = "preserve" if engine.keeps else "discard"
    assert [one.resumes for one in talks.values()] == [[kept], ["discard"]]
    assert differing(engine.core, engine.family.dtype, talks) == []


def test_a_follow_up_goes_on_where_its_request_ended(engine: Engine) -> None:
    """A client runs the tool: its next request extends that which ended with the call."""
    core, family = engine.core, engine.family
    prompt, result = draw(3, pauses=1).prompt, [*range(500, 520)]
    core.scheduler.reset_prefix_cache()
    core.add("first", prompt, 200, STOP, **forced(CALL))
    core.run(["first"])
    core.idle(2)
    first = prompt + core.said["first"]
    ends = core.scheduler.ends["first"]
    core.add("next", [*first, *result], 20)
    core.run(["next"])
    start = core.scheduler.starts["next"]
    block = core.config.cache_config.block_size
    cached = core.config.cache_config.enable_prefix_caching
    if engine.keeps and not family.alone:
        ahead = engine.asynchronous and family.recurrent  # the step in flight applied the last one
        assert start == len(first) - (not ahead), "nothing is computed again"
    elif cached and family.alone:
        assert start % block == 0 and start >= len(prompt) // block * block
    talks = {"next": Talk([*first, *result], [])}
    talks["next"].said.append(core.said["next"])
    before = [end for end in ends if end <= start]
    talks["next"].ends.append([*before, *core.scheduler.ends["next"][before[-1:] == [start] :]])
    assert differing(core, family.dtype, talks) == []


@pytest.mark.slow
def test_a_step_without_tokens_spoils_no_state(engine: Engine) -> None:
    """A request ends as another pauses: the runner is told of both, with nothing to compute."""
    core, one = engine.core, draw(4, "discard", 1)
    one.prompt += draw(5).prompt  # more than a block of every family
    core.scheduler.reset_prefix_cache()
    core.add("probe", one.prompt, 200, STOPS)
    core.run(["probe"])
    core.scheduler.reset_prefix_cache()
    core.add("paused", one.prompt, 200, STOPS, resumable=True)
    core.add("ended", draw(6).prompt, len(core.said["probe"]))
    core.run(["paused", "ended"])
    one.said.append(core.said["paused"])
    one.ends.append(core.scheduler.ends["paused"])
    core.drop_kv("paused")
    core.idle(3)
    core.add("paused", [one.said[0][-1], *one.results[0]], 20, resumable=True)
    core.run(["paused"])
    one.said.append(core.said["paused"])
    one.ends.append(core.scheduler.ends["paused"])
    assert differing(core, engine.family.dtype, {"paused": one}) == []


@pytest.mark.slow
@pytest.mark.parametrize("handling", ["preserve", "discard", "evict"])
def test_many_pauses_change_no_token(engine: Engine, handling: str) -> None:
    talks = {f"{handling}-{seed}": draw(seed, handling) for seed in range(10, 14)}
    talk(engine.core, talks)
    expected = "preserve" if handling == "preserve" and engine.keeps else "discard"
    assert {how for one in talks.values() for how in one.resumes} == {expected}
    assert differing(engine.core, engine.family.dtype, talks) == []


@pytest.mark.slow
def test_swapped_kv_changes_no_token(engine: Engine) -> None:
    """All of the cache on the device is wiped while the sessions are on the host."""
    talks = {f"swapped-{seed}": draw(seed, "swap", 2) for seed in range(30, 33)}
    with swapping_all(engine.core):
        talk(engine.core, talks)
    assert {how for one in talks.values() for how in one.resumes} == {"swap"}
    assert differing(engine.core, engine.family.dtype, talks) == []


@pytest.mark.slow
def test_a_small_pool_changes_no_token(engine: Engine) -> None:
    """KV is kept, dropped, and swapped, by chance and by need."""
    core = engine.core
    talks = {f"pressed-{seed}": draw(seed) for seed in range(20, 28)}
    core.scheduler.reset_prefix_cache()
    manager = core.scheduler.parts.manager
    pool = core.scheduler.kv_cache_manager.block_pool
    left = (2 if engine.family.alone else 4) * blocks_of_one(core)
    taken = pool.get_new_blocks(pool.get_num_free_blocks() - left)
    core.allowed_losses, usual = len(taken), manager.handling
    manager.handling = Whims(random.Random(5))
    try:
        talk(core, talks)
    finally:
        pool.free_blocks(taken)
        core.allowed_losses, manager.handling = 0, usual
    handlings = {how for one in talks.values() for how in one.resumes}
    assert {"discard", "swap"} & handlings, "there was no pressure"
    assert ("preserve" in handlings) is engine.keeps
    assert max(apart_from_alone(core, talks)) <= ALIKE[engine.family.dtype]
    if engine.family.dtype == "float32":
        assert differing(core, engine.family.dtype, talks) == []


def blocks_of_one(core: Core) -> int:
    """Return about how many blocks a session of these tests needs at most."""
    held = {"full": 500, "latent": 500, "state": 500, "window": 4 * WINDOW, "chunks": 4 * WINDOW}
    specs = [group.kv_cache_spec for group in core.scheduler.kv_cache_config.kv_cache_groups]
    return sum(cdiv(held[KINDS[type(spec).__name__]], spec.block_size) for spec in specs)


@pytest.mark.slow
def test_control_a_lost_token_would_be_noticed(engine: Engine) -> None:
    """At least in one of six sessions: a model of random weights forgets a token at times."""
    talks = {f"lossy-{seed}": draw(seed, pauses=1) for seed in range(6)}
    talk(engine.core, talks)
    for one in talks.values():
        del one.results[0][0]
    assert 1 in {turn for _, turn in differing(engine.core, "float32", talks)}


@pytest.mark.slow
def test_control_a_lost_state_would_be_noticed(engine: Engine) -> None:
    """In each session, although not in the tokens of each: a random model forgets its state."""
    if not engine.family.recurrent:
        pytest.skip("no layer keeps a state")
    talks = {f"lost-{seed}": draw(seed, "lost", pauses=1) for seed in range(4)}
    talk(engine.core, talks)
    assert {how for one in talks.values() for how in one.resumes} == {"preserve"}
    first, second = (apart_from_alone(engine.core, talks)[turn::2] for turn in range(2))
    assert max(first) <= ALIKE[engine.family.dtype] < min(second)
