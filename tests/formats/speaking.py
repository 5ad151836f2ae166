"""A model that says one text, in a session: what it says comes as from vLLM."""

from collections.abc import AsyncGenerator, Sequence
from types import SimpleNamespace
from typing import Any

from caesura.intercept.calls.watch import Verdict
from caesura.scheduler.vllm.client.turns import Language
from tests.formats.world import StandIn, stand_in
from tests.kit.host import StandInHost, output


class Engine(StandInHost):
    """It says one text, and says how the turn ended."""

    def __init__(
        self,
        name: str,
        tokens: Sequence[int],
        reason: str,
        verdict: Verdict | None = None,
        model: StandIn | None = None,
        formats: Sequence[str] | None = None,
    ) -> None:
        self.model, self.tokens, self.reason = model or stand_in(name), tokens, reason
        self.verdict = verdict
        language = Language(
            self.model.tokenizer,
            formats or (name,),
            self.model.ends,
            vocabulary=self.model.vocabulary,
        )
        super().__init__(language, self.renderer())

    def renderer(self) -> Any:
        return SimpleNamespace(
            prompt=lambda *_: [0],
            count_spelled=lambda messages: 0,
            bridge=lambda *_, **__: [0],
            thinking=lambda tokens: "",
        )

    def text_of(self, tokens: Sequence[int]) -> str:
        return b"".join(map(self.model.vocabulary.bytes_of, tokens)).decode()

    async def generate(self, chunks: Any, *given: Any, **named: Any) -> AsyncGenerator[Any, None]:
        said = [self.tokens, self.model.spelled("Well.")]
        async for _chunk in chunks:
            ids, said = said[0], said[1:]
            at_end = self.reason == "stop" and self.verdict is None
            ends = [max(self.model.ends)] if at_end else []
            verdict = self.verdict and self.verdict.value
            report = {"paused": at_end and bool(said), "verdict": verdict}
            yield output([*ids, *ends], self.reason, self.text_of(ids), report)
