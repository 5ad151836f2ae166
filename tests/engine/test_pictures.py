"""Over any pause, what a model says of a picture is what it says without the pause."""

import random
from collections.abc import Iterator, Sequence

import pytest
from vllm.distributed.kv_transfer.kv_transfer_state import get_kv_transfer_group
from vllm.multimodal.inputs import MultiModalFeatureSpec
from vllm.renderers import renderer_from_config
from vllm.renderers.params import ChatParams, TokenizeParams
from vllm.sampling_params import SamplingParams
from vllm.v1.engine.input_processor import InputProcessor

from tests.engine.swapping import swap_out, swapping_all

from .core import Core
from .seeing import PLACEHOLDERS, shown, vision_model

pytestmark = pytest.mark.engine

PAUSES = 2


class Eyes:
    """Makes prompts with pictures, as vLLM's own server does."""

    def __init__(self, core: Core) -> None:
        self._processor = InputProcessor(core.config, renderer_from_config(core.config))

    def see(self, *seeds: int) -> tuple[list[int], Sequence[MultiModalFeatureSpec]]:
        """Return the tokens of a question about pictures, and the pictures."""
        _, (prompt,) = self._processor.renderer.render_chat(
            [[shown("What is on it?", *seeds)]],
            ChatParams(chat_template_kwargs={"add_generation_prompt": True}),
            TokenizeParams(max_total_tokens=None, add_special_tokens=False),
            skip_mm_cache=True,
        )
        request = self._processor.process_inputs("r", prompt, SamplingParams(), ("generate",))
        assert request.prompt_token_ids is not None and request.mm_features
        return request.prompt_token_ids, request.mm_features


@pytest.fixture(scope="module", params=[512, 48], ids=["whole", "chunked"])
def core(request: pytest.FixtureRequest) -> Iterator[Core]:
    made = Core(
        model=vision_model(),
        max_num_batched_tokens=max(request.param, PLACEHOLDERS),
        max_num_seqs=8,
        limit_mm_per_prompt={"image": 2},
        kv_transfer_config={
            "kv_connector": "CaesuraConnector",
            "kv_connector_module_path": "caesura.scheduler.vllm",
            "kv_role": "kv_both",
            "kv_connector_extra_config": {"host_gib": 0.05},
        },
        additional_config={"caesura": {"handling": "preserve"}},
    )
    yield made
    made.close()


@pytest.fixture(scope="module")
def eyes(core: Core) -> Eyes:
    return Eyes(core)


def test_pictures_tell_prompts_of_equal_tokens_apart(core: Core, eyes: Eyes) -> None:
    """The model sees, and the prefix cache does not take one picture for another."""
    (tokens, first), (same, second) = eyes.see(1), eyes.see(2)
    assert tokens == same
    said = core.say(tokens, 12, first)
    core.add("other", tokens, 12, features=second)
    core.run(["other"])
    assert core.said["other"] == core.say(tokens, 12, second) != said


@pytest.fixture
def swapping(core: Core) -> Iterator[None]:
    with swapping_all(core):
        yield


@pytest.mark.parametrize("handling", ["preserve", "discard", "evict", "swap"])
def test_a_pause_changes_nothing(
    core: Core, eyes: Eyes, handling: str, request: pytest.FixtureRequest
) -> None:
    rng = random.Random(handling)
    tokens, features = eyes.see(3, 4)
    results = [[rng.randrange(8, 1000) for _ in range(50)] for _ in range(PAUSES)]
    context, said, stops = list(tokens), [], []
    for result in results:
        ahead = core.say(context, 24, features)
        at = next(i for i in range(8, 24) if ahead[i] not in ahead[:i])
        said.append(ahead[: at + 1])
        stops.append(ahead[at])
        context += [*said[-1], *result]
    said.append(core.say(context, 20, features))
    assert core.scheduler.reset_prefix_cache(reset_connector=True)
    if handling == "swap":
        request.getfixturevalue("swapping")
    core.add(handling, tokens, 100, stops[0], resumable=True, features=features)
    for turn, result in enumerate(results):
        core.run([handling])
        assert core.said[handling] == said[turn]
        if handling in ("discard", "evict"):
            core.drop_kv(handling)
        if handling == "evict":
            assert core.scheduler.reset_prefix_cache()
        if handling == "swap":
            swap_out(core, get_kv_transfer_group()._worker._copier)
        last = turn + 1 == PAUSES
        chunk = [said[turn][-1], *result]
        core.add(handling, chunk, 20 if last else 100, None if last else stops[turn + 1], True)
    core.run([handling])
    assert core.said[handling] == said[-1]
    resume = core.reports[handling]["resume"]
    assert resume["handling"] == {"evict": "discard"}.get(handling, handling)
    assert core.scheduler.requests == {}
