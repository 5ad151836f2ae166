"""What Langfuse, Phoenix and Jaeger read beside the GenAI conventions, added to spans sent.

Each dialect is a function from a span's attributes to more attributes, by the tool's own
documentation. The spans themselves stay as they are, so recordings and other processors see the
conventions alone. `CAESURA_OTEL_DIALECTS` names the dialects, and `none` switches all of them off.

- Langfuse, https://langfuse.com/integrations/native/opentelemetry#property-mapping
- Phoenix reads OpenInference,
  https://github.com/Arize-ai/openinference/blob/main/spec/semantic_conventions.md
- Jaeger shows attributes as tags, and the service of a client's span by `peer.service`,
  https://opentelemetry.io/docs/specs/semconv/registry/attributes/peer/
"""

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.util.types import AttributeValue

from caesura.runtime.recording import conventions as names

LOG = logging.getLogger(__name__)

VARIABLE = "CAESURA_OTEL_DIALECTS"
NONE = "none"

Attributes = Mapping[str, AttributeValue]
JSON, PLAIN = "application/json", "text/plain"

_LANGFUSE_TYPES = {
    names.INVOKE_AGENT: "agent",
    names.CHAT: "generation",
    names.EXECUTE_TOOL: "tool",
}
_OPENINFERENCE_KINDS = {names.INVOKE_AGENT: "AGENT", names.CHAT: "LLM", names.EXECUTE_TOOL: "TOOL"}
_PARAMETERS = {
    names.REQUEST_TEMPERATURE: "temperature",
    names.REQUEST_TOP_P: "top_p",
    names.REQUEST_TOP_K: "top_k",
    names.REQUEST_SEED: "seed",
    names.REQUEST_MAX_TOKENS: "max_tokens",
    names.REQUEST_PRESENCE_PENALTY: "presence_penalty",
    names.REQUEST_FREQUENCY_PENALTY: "frequency_penalty",
}


def langfuse(span: ReadableSpan, said: Attributes) -> dict[str, AttributeValue]:
    """Return the attributes by which Langfuse shows a span as an agent, a generation or a tool.

    The tokens of a run are told by its turns alone. Langfuse adds up what all observations tell.
    """
    operation = said.get(names.OPERATION)
    found: dict[str, AttributeValue] = {
        "langfuse.observation.type": _LANGFUSE_TYPES.get(str(operation), "span")
    }
    if session := _session(said):
        found["langfuse.session.id"] = session
    if user := said.get(names.USER_ID):
        found["langfuse.user.id"] = user
    if error := said.get(names.ERROR_TYPE):
        found["langfuse.observation.level"] = "ERROR"
        found["langfuse.observation.status_message"] = span.status.description or str(error)
    if operation == names.INVOKE_AGENT:
        found["langfuse.observation.usage_details"] = "{}"
        if span.parent is None:
            name = said.get(names.AGENT_NAME) or said.get(names.SESSION_ID) or span.name
            found["langfuse.trace.name"] = str(name)
    if operation == names.CHAT:
        found |= _generation(span, said)
    return found


def _generation(span: ReadableSpan, said: Attributes) -> dict[str, AttributeValue]:
    found: dict[str, AttributeValue] = {
        "langfuse.observation.model.name": str(said.get(names.REQUEST_MODEL, ""))
    }
    if parameters := _parameters(said):
        found["langfuse.observation.model.parameters"] = parameters
    seconds = said.get(names.TIME_TO_FIRST_CHUNK)
    if isinstance(seconds, int | float) and span.start_time is not None:
        first = datetime.fromtimestamp(span.start_time / 1e9 + seconds, UTC)
        found["langfuse.observation.completion_start_time"] = first.isoformat()
    if names.OUTPUT_TOKENS in said:
        given, written = _tokens(said, names.INPUT_TOKENS), _tokens(said, names.OUTPUT_TOKENS)
        thought, cached = _tokens(said, names.REASONING_TOKENS), _tokens(said, names.CACHED_TOKENS)
        # Langfuse adds these up, so each token is in one of them.
        usage = {"input": given - cached, "output": written - thought}
        usage |= {"input_cached_tokens": cached} if cached else {}
        usage |= {"output_reasoning_tokens": thought} if thought else {}
        found["langfuse.observation.usage_details"] = json.dumps(usage)
    return found


def openinference(span: ReadableSpan, said: Attributes) -> dict[str, AttributeValue]:
    """Return the attributes of OpenInference, by which Phoenix tells kinds, tokens and texts."""
    operation = str(said.get(names.OPERATION))
    kind = _OPENINFERENCE_KINDS.get(operation, "CHAIN")
    found: dict[str, AttributeValue] = {"openinference.span.kind": kind}
    if session := _session(said):
        found["session.id"] = session
    if agent := said.get(names.AGENT_NAME):
        found["agent.name"] = agent
    if operation == names.EXECUTE_TOOL:
        found["tool.name"] = str(said.get(names.TOOL_NAME, ""))
        found["tool.id"] = str(said.get(names.TOOL_CALL_ID, ""))
    found |= _text("input", said, names.INPUT_MESSAGES, names.TOOL_ARGUMENTS)
    found |= _text("output", said, names.OUTPUT_MESSAGES, names.TOOL_RESULT)
    if operation == names.CHAT:
        found |= _model(said)
    return found


def _model(said: Attributes) -> dict[str, AttributeValue]:
    found: dict[str, AttributeValue] = {
        "llm.model_name": str(said.get(names.REQUEST_MODEL, "")),
        "llm.system": names.VLLM,
        "llm.provider": names.VLLM,
    }
    if parameters := _parameters(said):
        found["llm.invocation_parameters"] = parameters
    if names.OUTPUT_TOKENS in said:
        given, written = _tokens(said, names.INPUT_TOKENS), _tokens(said, names.OUTPUT_TOKENS)
        found["llm.token_count.prompt"] = given
        found["llm.token_count.completion"] = written
        found["llm.token_count.total"] = given + written
        if cached := _tokens(said, names.CACHED_TOKENS):
            found["llm.token_count.prompt_details.cache_read"] = cached
        if thought := _tokens(said, names.REASONING_TOKENS):
            found["llm.token_count.completion_details.reasoning"] = thought
    for name, prefix in (
        (names.INPUT_MESSAGES, "llm.input_messages"),
        (names.OUTPUT_MESSAGES, "llm.output_messages"),
    ):
        for index, message in enumerate(_messages(said.get(name))):
            found |= dict(_flat(f"{prefix}.{index}.message", message))
    return found


def _text(side: str, said: Attributes, *names_of: str) -> dict[str, AttributeValue]:
    text = next((said[name] for name in names_of if name in said), None)
    if not isinstance(text, str):
        return {}
    return {f"{side}.value": text, f"{side}.mime_type": JSON if _is_json(text) else PLAIN}


def _flat(prefix: str, message: Mapping[str, Any]) -> Iterator[tuple[str, AttributeValue]]:
    """Yield a message of the GenAI conventions as flat attributes."""
    parts = [part for part in message.get("parts") or () if isinstance(part, Mapping)]
    texts = [str(part.get("content")) for part in parts if part.get("type") == "text"]
    texts += [str(p.get("response")) for p in parts if p.get("type") == "tool_call_response"]
    yield f"{prefix}.role", str(message.get("role", ""))
    if texts:
        yield f"{prefix}.content", "\n".join(texts)
    for part in parts:
        if part.get("type") == "tool_call_response" and part.get("id"):
            yield f"{prefix}.tool_call_id", str(part["id"])
    calls = [part for part in parts if part.get("type") == "tool_call"]
    for index, call in enumerate(calls):
        at = f"{prefix}.tool_calls.{index}.tool_call"
        yield f"{at}.id", str(call.get("id") or "")
        yield f"{at}.function.name", str(call.get("name") or "")
        yield f"{at}.function.arguments", str(call.get("arguments") or "")


def jaeger(span: ReadableSpan, said: Attributes) -> dict[str, AttributeValue]:
    """Return the name of the engine as the peer of a turn, whose span is a client's."""
    return {"peer.service": names.VLLM} if said.get(names.OPERATION) == names.CHAT else {}


Dialect = Callable[[ReadableSpan, Attributes], dict[str, AttributeValue]]
DIALECTS: Mapping[str, Dialect] = {
    "langfuse": langfuse,
    "phoenix": openinference,
    "jaeger": jaeger,
}


def dialects_in(environ: Mapping[str, str]) -> tuple[Dialect, ...]:
    """Return the dialects that the environment names: all by default. Unknown names are logged."""
    wanted = environ.get(VARIABLE, "").strip().lower()
    if not wanted:
        return tuple(DIALECTS.values())
    asked = [name.strip() for name in wanted.split(",") if name.strip() not in ("", NONE)]
    for name in asked:
        if name not in DIALECTS:
            choices = ", ".join([*DIALECTS, NONE])
            LOG.warning("%s names %r, which is unknown: choose from %s", VARIABLE, name, choices)
    return tuple(DIALECTS[name] for name in DIALECTS if name in asked)


class Speaking(SpanExporter):
    """An exporter that adds attributes of dialects to Caesura's own spans before it sends them."""

    def __init__(self, exporter: SpanExporter, dialects: Sequence[Dialect]) -> None:
        self._exporter = exporter
        self._dialects = tuple(dialects)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send spans with the dialects' attributes."""
        return self._exporter.export([self._spoken(span) for span in spans])

    def shutdown(self) -> None:
        """Shut the exporter down."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Send what the exporter holds."""
        return self._exporter.force_flush(timeout_millis)

    def _spoken(self, span: ReadableSpan) -> ReadableSpan:
        said = span.attributes or {}
        if said.get(names.OPERATION) not in _LANGFUSE_TYPES and names.PHASE not in said:
            return span
        more: dict[str, AttributeValue] = {}
        for dialect in self._dialects:
            more |= dialect(span, said)
        return _with(span, {**more, **said})


def _with(span: ReadableSpan, attributes: Attributes) -> ReadableSpan:
    return ReadableSpan(
        name=span.name,
        context=span.context,
        parent=span.parent,
        resource=span.resource,
        attributes=attributes,
        events=span.events,
        links=span.links,
        kind=span.kind,
        status=span.status,
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )


def _session(said: Attributes) -> AttributeValue | None:
    """Return the session's name that a client chose, else the SDK's id of the conversation."""
    return said.get(names.SESSION_ID) or said.get(names.CONVERSATION_ID)


def _parameters(said: Attributes) -> str:
    known = {short: said[name] for name, short in _PARAMETERS.items() if name in said}
    return json.dumps(known) if known else ""


def _tokens(said: Attributes, name: str) -> int:
    value = said.get(name)
    return value if isinstance(value, int) else 0


def _messages(text: AttributeValue | None) -> list[Mapping[str, Any]]:
    read: Any = None
    with suppress(ValueError):
        read = json.loads(text) if isinstance(text, str) else None
    return [one for one in read if isinstance(one, Mapping)] if isinstance(read, list) else []


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), list | dict)
    except ValueError:
        return False
