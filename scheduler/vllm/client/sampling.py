"""The sampling of turns: what holds by default, what bounds it, and vLLM's parameters for it."""

from dataclasses import replace
from typing import Any

from vllm import SamplingParams
from vllm.config import ModelConfig
from vllm.exceptions import VLLMValidationError
from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

from caesura.scheduler.errors import UsageError
from caesura.scheduler.messages import Sampling
from caesura.scheduler.vllm.wire import WHOLE_TURN_KEY


class SamplingRules:
    """What a model's configuration and its operator say about the sampling of all turns."""

    def __init__(self, config: ModelConfig, *, reads_special_tokens: bool = True) -> None:
        """Create them; with `reads_special_tokens` the text of special tokens is kept."""
        self._defaults = _default_sampling(config)
        self._default_max_tokens = self._defaults.pop("max_tokens", None)
        self._reads_special = reads_special_tokens
        self.max_answer_tokens = _max_answer_tokens(config)
        """The operator's bound on an answer's tokens, or None; see `Engine.max_answer_tokens`."""

    @property
    def default(self) -> Sampling:
        """The settings of the model's generation configuration, which hold by default."""
        defaults = self._defaults
        return Sampling(
            temperature=defaults.get("temperature"),
            top_p=defaults.get("top_p"),
            top_k=defaults.get("top_k"),
            max_tokens=self._default_max_tokens,
        )

    def bounded(self, sampling: Sampling) -> Sampling:
        """Return a turn's settings with the default and the bound on its tokens."""
        asked = sampling.max_tokens or self._default_max_tokens
        bounds = [each for each in (asked, self.max_answer_tokens) if each is not None]
        return replace(sampling, max_tokens=min(bounds, default=None))

    def params(
        self,
        sampling: Sampling,
        max_tokens: int,
        given_args: dict[str, Any] | None,
        grammar: StructuredOutputsParams | None = None,
    ) -> SamplingParams:
        """Return vLLM's sampling parameters; the model's generation configuration has the defaults.

        `given_args` are the scheduler's, such as the watch plan. `grammar` constrains the turn,
        thinking included. Raises `UsageError` for values that vLLM refuses.
        """
        chosen = {**self._defaults, **_given(sampling), "max_tokens": max_tokens}
        extra_args = {**(given_args or {}), **({WHOLE_TURN_KEY: True} if grammar else {})}
        try:
            return SamplingParams(
                **chosen,
                extra_args=extra_args or None,
                structured_outputs=grammar,
                output_kind=RequestOutputKind.DELTA,
                # The parsers need the text of special tokens with which calls are written.
                skip_special_tokens=not self._reads_special,
                # The token that stops a turn may hold text.
                include_stop_str_in_output=True,
            )
        except (ValueError, VLLMValidationError) as error:
            raise UsageError(str(error)) from error


def _given(sampling: Sampling) -> dict[str, Any]:
    """Return the settings that the caller has chosen, under vLLM's names."""
    given = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "seed": sampling.seed,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "repetition_penalty": sampling.repetition_penalty,
        "min_tokens": sampling.min_tokens,
        "stop_token_ids": list(sampling.stop_token_ids) or None,
        "logit_bias": dict(sampling.logit_bias) or None,
        "bad_words": list(sampling.bad_words) or None,
        "logprobs": sampling.logprobs,
        # An object for each token of a long session would take much memory.
        "flat_logprobs": True if sampling.logprobs is not None else None,
    }
    return {name: value for name, value in given.items() if value is not None}


def _max_answer_tokens(config: ModelConfig) -> int | None:
    """Return the bound that vLLM's server sets on each answer's tokens, or None if there is none.

    The operator sets it, by an option or by a configuration in place of the model's. What the
    model's own configuration says is a default only.
    """
    if config.generation_config not in ("auto", "vllm"):
        return config.get_diff_sampling_param().get("max_tokens")
    return config.override_generation_config.get("max_new_tokens")


def _default_sampling(config: ModelConfig) -> dict[str, Any]:
    """Return the model's generation configuration, with temperature 0 for greedy decoding.

    vLLM ignores `do_sample: false` and uses a temperature of 1 if none is configured.
    """
    defaults = config.get_diff_sampling_param()
    if config.try_get_generation_config().get("do_sample") is False:
        defaults.setdefault("temperature", 0.0)
    return defaults
