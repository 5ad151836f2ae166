"""vLLM's worker for CPUs, which takes seeded requests whose prompts are split over steps.

vLLM samples a token for every request of a step, also within a prompt, and drops that one. It then
sets the generator of a seeded request back by an offset. Generators of CPUs have none, so that the
engine ends (`gpu_model_runner.py`, `set_offset`, in vLLM 0.32).
"""

from typing import Any

import numpy as np
from vllm.v1.worker.cpu_worker import CPUWorker


class SeededCPUWorker(CPUWorker):
    """Keeps the generators of seeded requests out of steps whose tokens are dropped."""

    def sample_tokens(self, grammar_output: Any) -> Any:
        """Sample the step's tokens; see vLLM's worker."""
        runner: Any = self.model_runner
        batch = getattr(runner, "input_batch", None)
        if batch is None or not getattr(batch, "generators", None):
            return super().sample_tokens(grammar_output)
        dropped = np.nonzero(runner.discard_request_mask.np[: batch.num_reqs])[0]
        kept = {int(i): batch.generators.pop(int(i)) for i in dropped if int(i) in batch.generators}
        try:
            return super().sample_tokens(grammar_output)
        finally:
            batch.generators.update(kept)
