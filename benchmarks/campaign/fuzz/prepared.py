"""What becomes of a turn before the engine has it: its prompt, grammar, plan and parameters."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from transformers import AutoTokenizer
from vllm.config import StructuredOutputsConfig
from vllm.exceptions import VLLMValidationError
from vllm.v1.serial_utils import MsgpackEncoder

from caesura.runtime.launch import BUNDLED_MODEL
from caesura.scheduler.errors import UsageError
from caesura.scheduler.messages import Message, Sampling, SessionSpec, has_media
from caesura.scheduler.vllm.client.rendering.media import NO_MEDIA
from caesura.scheduler.vllm.client.request import SentTurn, SurvivingRequest
from caesura.scheduler.vllm.client.turns import TurnMaker
from tests.scheduler.unstarted import engine_with

CONTEXT_TOKENS = 2048


class Preparation:
    """Prepares turns as a session of the bundled model does, up to the message to the engine."""

    def __init__(self) -> None:
        """Load the tokenizer."""
        self.tokenizer = AutoTokenizer.from_pretrained(BUNDLED_MODEL)
        self._engine = engine_with(self.tokenizer, context_tokens=CONTEXT_TOKENS)
        self._encoder = MsgpackEncoder()
        self._model: Any = SimpleNamespace(
            max_logprobs=20,
            max_model_len=CONTEXT_TOKENS,
            is_diffusion=False,
            get_vocab_size=lambda: len(self.tokenizer),
        )

    def check(
        self, spec: SessionSpec, history: Sequence[Message], sampling: Sampling | None
    ) -> None:
        """Prepare a turn, and pack it for the engine; raises what a session would raise."""
        if has_media(history):
            return
        engine, chosen = self._engine, sampling or spec.sampling
        renderer = engine.rendering.renderer
        tokens = renderer.prompt(history, spec.tools, spec.template, spec.prefill)
        thinking = renderer.thinking(tokens)
        turn = SentTurn(tokens, len(tokens), "fresh", chosen, thinking, NO_MEDIA)
        SurvivingRequest(engine, spec, TurnMaker(engine.language, spec)).prepare(turn)
        try:
            turn.params.verify(self._model, None, StructuredOutputsConfig(), self.tokenizer)
        except VLLMValidationError as error:
            raise UsageError(str(error)) from error
        self._encoder.encode([tokens, turn.params, spec.cache_salt, spec.priority])
