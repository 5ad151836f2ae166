"""What stands for `VllmEngine` and for vLLM's client at once, in tests of sessions and requests."""

import uuid
from collections.abc import AsyncGenerator, Mapping
from types import SimpleNamespace
from typing import Any

from caesura.scheduler.messages import Sampling
from caesura.scheduler.vllm.client.data_parallel import Route
from caesura.scheduler.vllm.client.rendering.conversation import Rendering
from caesura.scheduler.vllm.client.rendering.splice import Splicer
from caesura.scheduler.vllm.client.rendering.threads import RenderThreads
from caesura.scheduler.vllm.client.turns import Language
from caesura.scheduler.vllm.wire import REPORT_KEY


class StandInHost:
    """A `Host` whose engine gives what `generate` yields; each test has its own."""

    context_tokens = 10_000
    observability_config = SimpleNamespace(otlp_traces_endpoint=None)
    grammars: Any = SimpleNamespace(of_turn=lambda *given: None)
    routes: Any = SimpleNamespace(of=lambda *given: Route())

    def __init__(self, language: Language | None = None, renderer: Any = None) -> None:
        self.language = language or Language(None, (), ())
        threads = RenderThreads()
        splicer = Splicer(renderer, threads, self.context_tokens, None)
        media: Any = None
        self.rendering = Rendering(renderer, media, splicer, threads)
        self.sampling: Any = self
        self.output_handler: Any = None
        self.vllm_config: Any = SimpleNamespace(instance_id=uuid.uuid4().hex)
        self.aborted: list[str] = []
        self.restarts = 0

    @property
    def llm(self) -> Any:
        return self

    @property
    def errored(self) -> bool:
        return False

    def bounded(self, sampling: Sampling) -> Sampling:
        return sampling

    def params(
        self, sampling: Sampling, max_tokens: int, given_args: Any, grammar: Any = None
    ) -> Any:
        return SimpleNamespace(extra_args=given_args)

    def adapter(self, name: str | None) -> None:
        assert name is None

    async def command(
        self, message: str | Mapping[str, Any], rank: int | None = None
    ) -> dict[str, Any]:
        raise NotImplementedError

    async def revived(self, error: Exception) -> None:
        self.restarts += 1

    async def abort(self, request_id: str) -> None:
        self.aborted.append(request_id)

    def generate(self, prompt: Any, *given: Any, **named: Any) -> AsyncGenerator[Any, None]:
        raise NotImplementedError


def output(
    tokens: list[int],
    finish: str | None = None,
    text: str = "",
    report: Mapping[str, Any] | None = None,
) -> Any:
    """An output of vLLM's; `report` is what the scheduler says of the turn that ends with it."""
    piece = SimpleNamespace(token_ids=tokens, text=text, finish_reason=finish, logprobs=None)
    told = None if report is None else {REPORT_KEY: report}
    return SimpleNamespace(outputs=[piece], kv_transfer_params=told, num_cached_tokens=0)
