"""What a session makes for each turn: the plan of the engine's watch, and the reader."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from caesura.intercept.calls.formats import INLINE, REACT, resolve
from caesura.intercept.calls.inline import InlineParser
from caesura.intercept.calls.react import ReactParser
from caesura.intercept.calls.thinking import Thinking
from caesura.intercept.calls.watch import Turn, WatchPlan
from caesura.scheduler.errors import UsageError
from caesura.scheduler.messages import Sampling, SessionSpec, callable_tools
from caesura.scheduler.vllm.client.parsing import new_call_id
from caesura.scheduler.vllm.client.parsing.reader import TurnReader
from caesura.scheduler.vllm.wire import WATCH_KEY

if TYPE_CHECKING:
    from caesura.scheduler.vllm.client.engine import VllmEngine


class TurnMaker:
    """Makes the watch plans and readers of one session's turns."""

    def __init__(self, engine: "VllmEngine", spec: SessionSpec) -> None:
        """Create it for a session of `spec` with the model that `engine` serves."""
        self._engine = engine
        self._spec = spec
        self.watched = bool(spec.tools) and spec.tool_choice == "auto"
        """Whether the model may call tools, so that its turns are searched for calls."""
        self.pausing = spec.pausing and self.watched
        """Whether the request pauses at a call."""

    def watch(self, turn: Turn, sampling: Sampling, thinking: str) -> dict[str, Any] | None:
        """Return vLLM's `extra_args` with the plan of the engine's watch, or None without one.

        `thinking` is the marker of thinking after which the turn begins, or empty. Raises
        `UsageError` for more tools or stop texts than a plan holds.
        """
        formats = self._engine.formats if self.pausing else ()
        if not formats and not sampling.stop:
            return None
        names = tuple(tool["function"]["name"] for tool in callable_tools(self._spec, sampling))
        try:
            about = (formats, names, sampling.stop, turn, self._spec.pauses, thinking)
            plan = WatchPlan(*about, spelled=_has_grammar(sampling))
        except ValueError as error:
            raise UsageError(f"too many tools or stop texts, send fewer: {error}") from error
        return {WATCH_KEY: plan.to_wire()}

    def reader(
        self, sampling: Sampling, opener: str, new_id: Callable[[], str] | None = None
    ) -> TurnReader:
        """Return a reader for a turn; it begins within thinking if `opener` is not empty.

        `new_id` makes the ids of its calls; without it they are random.
        """
        tools = callable_tools(self._spec, sampling)
        schemas = {
            tool["function"]["name"]: tool["function"].get("parameters") or {} for tool in tools
        }
        inline: InlineParser | ReactParser | None = None
        if self.pausing and {INLINE, REACT.name} & set(self._engine.formats):
            made = InlineParser if INLINE in self._engine.formats else ReactParser
            inline = made(schemas, new_call_id)
        parser = self._engine.turn_parser(tools) if self.watched else None
        if not self.watched and not self._spec.prefill:
            parser = self._engine.channel_parser()
        formats = resolve(self._engine.formats if self.watched else (), schemas)
        thinking = Thinking(formats, opener, self._engine.thinking)
        spelled = self._engine.spelled_openers(() if _has_grammar(sampling) else formats)
        return TurnReader(parser, inline, sampling.stop, thinking, spelled, formats, new_id)


def _has_grammar(sampling: Sampling) -> bool:
    """Return whether a grammar may lead the model to spell an opener, which is then no mention."""
    return sampling.calls is not None or sampling.text is not None
