"""vLLM's own HTTP application on an engine, as the server in front of it sees it."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from caesura.scheduler.answers import FollowUp
from caesura.scheduler.messages import Message, Sampling, SessionSpec
from caesura.scheduler.session_log import SampledFacts

if TYPE_CHECKING:
    from starlette.types import ASGIApp


class TapListener(Protocol):
    """Is told of a request while vLLM's server answers it."""

    @property
    def takes_facts(self) -> bool:
        """Whether it wants what is known of sampled tokens, which costs the engine something."""
        ...

    def sent(self, request_id: str) -> None:
        """Take the id of a request that goes to the engine, of each of several."""
        ...

    def first(self) -> None:
        """Take the news that the first tokens have come."""
        ...


class TokenTap(Protocol):
    """The tokens of a request that vLLM's server answers."""

    tokens: list[int]
    """The prompt, and what the model sampled."""
    prompt: int
    """How many of the tokens are the prompt."""
    requests: int
    """How many requests were sent to the engine; with more than one, `tokens` are mixed."""
    prompt_tokens: int
    """Of all requests; several answers to one prompt count it once."""
    completion_tokens: int
    """Of all answers."""
    cached_tokens: int
    """How many tokens of the prompts the prefix cache had."""
    facts: SampledFacts
    """What is known of the sampled tokens, where the listener takes it."""
    reason: str | None
    """Why the last answer that ended did, in vLLM's words."""
    listener: TapListener | None
    """Is told of the request, if it is set before that is sent."""


class ServerSplicing(Protocol):
    """Splicing for requests that vLLM's own server answers."""

    @property
    def fields(self) -> Collection[str]:
        """The fields of a chat completion that the server reads."""
        ...

    async def follow_up(
        self, messages: Sequence[Message], spec: SessionSpec, sampling: Sampling
    ) -> FollowUp | None:
        """Return the prompt of a conversation, or None if nothing in it follows an answer."""
        ...

    @property
    def rearranges(self) -> bool:
        """Whether there are messages that the chat template does not take as they are sent."""
        ...

    async def rearranged(
        self, messages: Sequence[Message], spec: SessionSpec, sampling: Sampling
    ) -> Sequence[int] | None:
        """Return the prompt of messages that are written otherwise than they are sent, or None."""
        ...

    async def remember(self, messages: Sequence[Message], spec: SessionSpec, tap: TokenTap) -> None:
        """Keep the tokens of a conversation; the last of the messages is its answer."""
        ...

    def tapped(self) -> AbstractContextManager[TokenTap]:
        """Follow the tokens of the request that the context sends to vLLM's server."""
        ...


@dataclass(frozen=True, slots=True)
class VllmServer:
    """vLLM's own HTTP application on an engine."""

    app: "ASGIApp"
    max_characters: int | None
    """A text of more characters does not fit the context window; None if that is not known."""
    splicing: ServerSplicing | None = None
    """None if the follow-ups of chat completions are always rendered."""
    parses_alone: bool = False
    """Whether it alone can read the model's answers: calls of another format, or thinking."""
    keeps_budgets: bool = False
    """Whether it ends thinking that has used up the budget of its request."""
    listens: bool = False
    """Whether it is the server that listens, and answers for models, health and metrics."""
    renew: Callable[[], Awaitable[None]] | None = None
    """Builds the application anew on an engine that was started again."""
    salted: Callable[[Callable[[str | None], str]], AbstractContextManager[None]] | None = None
    """Makes the salts of requests that a context sends, from the salts that their clients chose."""
    tapped: Callable[[], AbstractContextManager[TokenTap]] | None = None
    """Follows the tokens of the requests that a context sends."""
