"""How tokens are sampled: the fields that chat completions and Responses share."""

from typing import Annotated

from pydantic import BaseModel, Field, FiniteFloat

from caesura.runtime.server.request.fields import Listed, NotEmpty
from caesura.runtime.server.request.output import StructuredOutputs
from caesura.scheduler.messages import Sampling, TextFormat

MAX_TOP_LOGPROBS = 20
MAX_STOPS = 64
"""Each stop text is looked for at every token, in the engine too."""
MAX_BAD_WORDS = 1_024
TokenId = Annotated[int, Field(ge=0, lt=2**31)]
Penalty = Annotated[FiniteFloat, Field(ge=-2, le=2)]


class SamplingFields(BaseModel):
    """Fields of OpenAI's and vLLM's that set how tokens are sampled."""

    temperature: Annotated[FiniteFloat, Field(ge=0, le=2)] | None = None
    top_p: Annotated[FiniteFloat, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, lt=2**31)] | None = None
    min_p: Annotated[FiniteFloat, Field(ge=0, le=1)] | None = None
    min_tokens: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    stop: Annotated[list[NotEmpty], Field(max_length=MAX_STOPS), Listed] = []
    stop_token_ids: Annotated[list[TokenId], Field(max_length=MAX_BAD_WORDS), Listed] = []
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Annotated[FiniteFloat, Field(gt=0, le=2)] | None = None
    logit_bias: dict[TokenId, Annotated[FiniteFloat, Field(ge=-100, le=100)]] | None = None
    bad_words: Annotated[list[NotEmpty], Field(max_length=MAX_BAD_WORDS), Listed] = []
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    structured_outputs: StructuredOutputs | None = None

    def sampling_with(
        self, max_tokens: int | None, logprobs: bool, text: TextFormat | None
    ) -> Sampling:
        """Return the sampling settings; the answer's text has the form `text`, if any."""
        return Sampling(
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            max_tokens=max_tokens,
            seed=self.seed,
            stop=tuple(self.stop),
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            repetition_penalty=self.repetition_penalty,
            min_p=self.min_p,
            min_tokens=self.min_tokens,
            stop_token_ids=tuple(self.stop_token_ids),
            logit_bias=self.logit_bias or {},
            bad_words=tuple(self.bad_words),
            logprobs=(self.top_logprobs or 0) if logprobs else None,
            text=text,
        )
