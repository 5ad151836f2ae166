"""What the sessions of an agent share, what one of them is told, and what its runs return."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, Literal

from caesura.runtime.engine import Engine, EngineSession
from caesura.runtime.errors import UsageError
from caesura.runtime.events import T, Usage
from caesura.runtime.run.limits import Limits
from caesura.runtime.run.media import Content, MediaFetcher, content_of
from caesura.runtime.sdk.handoffs import Roles
from caesura.runtime.sdk.hooks import Hooks, Prompt
from caesura.runtime.sdk.instructions import Instructions
from caesura.scheduler.messages import Message, Sampling
from caesura.scheduler.programs import Origin
from caesura.tools.dispatcher import ToolCall, ToolResult

if TYPE_CHECKING:
    from caesura.runtime.sdk.agent_tools import OwnTool
    from caesura.runtime.sdk.output import OutputForm
    from caesura.runtime.tracing.run import RunTrace
    from caesura.runtime.tracing.tracing import Tracing
    from caesura.tools.people import People


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """The answer of a run.

    `output` is of the agent's output type; without one it is the text. `reason` is `stop`,
    `length` if a token limit cut the text, or `interrupted` if the caller did. `calls` holds the
    run's calls with their results, in the model's order, including malformed calls. `messages` is
    the whole history after the run, in OpenAI's form. `usage` is the run's own; `total_usage` has
    that of its sub-agents too, and `cost` is what that costs by `Limits.prices`. `agent` is the
    name of the agent that answered.
    """

    text: str
    reason: Literal["stop", "length", "interrupted"]
    usage: Usage
    calls: tuple[tuple[ToolCall, ToolResult], ...]
    messages: tuple[Message, ...]
    output: T
    total_usage: Usage
    cost: float
    agent: str | None

    def __str__(self) -> str:
        """Return the answer's text."""
        return self.text

    def __repr__(self) -> str:
        tokens = self.usage.completion_tokens
        return f"<Answer {self.text!r}: {self.reason}, {len(self.calls)} call(s), {tokens} tokens>"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """What the sessions of an agent share.

    `people` answer their questions and approve their calls. Without `tracing` runs have no spans.
    Without `output` answers are texts.
    """

    sampling: Sampling
    limits: Limits
    media: MediaFetcher
    people: "People"
    tracing: "Tracing | None"
    output: "OutputForm[Any] | None"
    tries: int
    """How often an answer is asked for that does not fit, or that a hook refuses."""
    hooks: tuple[Hooks[Any], ...]
    roles: Roles = field(default_factory=dict)
    """The agents that a conversation may be passed to."""
    trajectories: bool = False
    """Whether sessions record all tokens, for `Session.trajectory`."""

    def of_branches(self, count: int, sampling: Sampling | None) -> "list[SessionSettings]":
        """Return the settings of branches of a session; `sampling` replaces theirs.

        Where that has a seed, each has another one.
        """
        wanted = self.sampling
        if sampling is not None:
            wanted = replace(sampling, text=wanted.text)
        seeds = (None if wanted.seed is None else wanted.seed + at for at in range(count))
        return [replace(self, sampling=replace(wanted, seed=seed)) for seed in seeds]

    def trace(
        self,
        engine: Engine,
        about: tuple[str | None, str, Origin],
        session: EngineSession | None,
        earlier: Sequence[Message],
    ) -> "RunTrace | None":
        """Begin the span of a run in a session, behind its `earlier` messages, if it has one.

        `about` is the agent, and the session's id and origin. `session` is the engine's.
        """
        if self.tracing is None:
            return None
        from caesura.runtime.tracing.who import RunIds, Who

        self.tracing.watch(engine.backend)
        agent, named, origin = about
        ids = RunIds(request=getattr(session, "request_id", None))
        who = Who(session="" if origin.session == named else origin.session, parent=origin.parent)
        trace = self.tracing.run(engine.model, agent, named, ids=ids, who=who)
        trace.remember(earlier)
        return trace


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentParts:
    """What an agent was made from, for another place where it answers."""

    instructions: Instructions
    tools: tuple["OwnTool", ...]
    """As they were given; agents among them are tools."""
    output: Any
    output_retries: int
    form: "OutputForm[Any] | None"
    """The form of its answers, unless they are texts."""
    sampling: Sampling
    """With the form, if there is one."""
    limits: Limits | None
    """None: it has those of a configuration."""
    wanted_deps: Sequence[tuple[str, Any]]
    """Who wants dependencies, and the annotation that names their type."""
    ties: frozenset[str]
    """The names of further arguments that were given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """Whose session it is, and what its agent says first."""

    name: str | None = None
    """The agent's."""
    user: str | None = None
    parent: str = ""
    deps: Any = None
    instructions: Instructions


def prompt_content(prompt: Prompt) -> Content:
    """Return the content of a prompt's message; raise `UsageError` for wrong parts."""
    if isinstance(prompt, bytes) or not isinstance(prompt, Sequence):
        raise UsageError(
            f"the prompt must be a text or a list of parts, got {type(prompt).__name__}"
        )
    roles = [part["role"] for part in prompt if isinstance(part, Mapping) and "role" in part]
    if roles:
        raise UsageError(
            f"the prompt is a list of messages, with the roles {roles[:5]}: open"
            " agent.session(messages) with the earlier ones, and run it on the last one's content"
        )
    try:
        return content_of(prompt if isinstance(prompt, str) else list(prompt))
    except ValueError as error:
        raise UsageError(f"the prompt: {error}") from None
