"""The text of a turn whose tokens did not all come from one request of vLLM's.

vLLM's text of a request begins with its output. A character or a word may begin before that.
"""

from collections.abc import Sequence
from typing import Any

from vllm import SamplingParams
from vllm.v1.engine import EngineCoreRequest
from vllm.v1.engine.detokenizer import IncrementalDetokenizer


class ReplayedText:
    """Decodes the tokens of one turn as vLLM does, by its own decoder."""

    def __init__(self, tokenizer: Any, prompt: Sequence[int], params: SamplingParams) -> None:
        """Create it for a turn behind `prompt`; `params` say whether special tokens are shown."""
        request = EngineCoreRequest(
            request_id="text",
            prompt_token_ids=list(prompt),
            mm_features=None,
            sampling_params=params,
            pooling_params=None,
            arrival_time=0.0,
            lora_request=None,
            cache_salt=None,
            data_parallel_rank=None,
        )
        self._decoder = IncrementalDetokenizer.from_new_request(tokenizer, request)

    def push(self, token_ids: Sequence[int]) -> str:
        """Return the text of further tokens, up to the last complete character."""
        self._decoder.update(list(token_ids), False)
        return self._decoder.get_next_output_text(False, True)
