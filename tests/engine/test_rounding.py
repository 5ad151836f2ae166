"""Stock vLLM, without pauses: what a model says beside others, and alone in the same chunks.

It shows what the bound of `alike.ALIKE` allows, where nothing of ours is at work.
"""

import random

import pytest

from .alike import ALIKE, RIVALS, StockChunkRecorder, apart
from .core import Core, streams_of_cpu
from .families import FAMILIES, VOCABULARY, model_of

pytestmark = [pytest.mark.engine, pytest.mark.slow]


@pytest.mark.parametrize("name", ["Qwen3-Next", "gpt-oss"])
def test_texts_are_as_near_to_those_of_a_run_alone(name: str) -> None:
    rng, dtype = random.Random(40), FAMILIES[name].dtype
    prompts = {
        f"stock-{number}": [rng.randrange(8, VOCABULARY) for _ in range(rng.randint(80, 400))]
        for number in range(24)
    }
    with streams_of_cpu():
        core = Core(
            model=model_of(name),
            asynchronous=True,
            dtype=dtype,
            scheduler_cls=StockChunkRecorder,
            max_num_seqs=16,
        )
        for request, prompt in prompts.items():
            core.add(request, prompt, 40, logprobs=RIVALS)
        core.run(prompts)
        found = [
            apart(core, prompt, core.said[one], core.scores[one], core.scheduler.ends[one])
            for one, prompt in prompts.items()
        ]
        core.close()
    assert max(found) <= ALIKE[dtype]
