"""A logits processor that makes the bundled model write what its prompt asks for."""

from dataclasses import dataclass

import torch
from transformers import AutoTokenizer
from vllm import SamplingParams
from vllm.config import VllmConfig
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates

from tests.clients.script import wanted


@dataclass
class Forced:
    """The texts that one request may have to write, as tokens, and what it has written."""

    texts: list[list[int]]
    """The alternatives that are left; the first one is being written. None: the model is free."""
    written: list[int]
    """The request's output, which vLLM extends."""

    def next_token(self, logits: torch.Tensor) -> int | None:
        """Return the next token of the first text that is permitted and fits what is written."""
        place = len(self.written)
        while self.texts:
            text = self.texts[0]
            if place >= len(text):
                return None
            if text[:place] == self.written and logits[text[place]] > float("-inf"):
                return text[place]
            self.texts.pop(0)
        return None


class Echo(LogitsProcessor):
    """Forces the texts of `tests.clients.script`, then the end of the turn.

    A token that a grammar forbids is never forced: the turn's next text is tried. Without one the
    model is free.
    """

    def __init__(self, vllm_config: VllmConfig, device: torch.device, is_pin_memory: bool) -> None:
        self._tokenizer = AutoTokenizer.from_pretrained(vllm_config.model_config.tokenizer)
        self._requests: dict[int, Forced] = {}

    def wanted(self, prompt: str) -> list[str]:
        """Return what is to be written behind a prompt: alternatives, or none to leave it open."""
        return wanted(prompt)

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        process_dict_updates(self._requests, batch_update, self._forced)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, forced in self._requests.items():
            token = forced.next_token(logits[row]) if row < len(logits) else None
            if token is not None:
                kept = logits[row, token].item()
                logits[row] = float("-inf")
                logits[row, token] = kept
        return logits

    def _forced(
        self, params: SamplingParams, prompt: list[int] | None, written: list[int]
    ) -> Forced | None:
        texts = self.wanted(self._tokenizer.decode(prompt or [], skip_special_tokens=False))
        if not texts:
            return None
        encoded = [self._tokenizer.encode(text, add_special_tokens=False) for text in texts]
        return Forced([[*text, self._tokenizer.eos_token_id] for text in encoded], written)
