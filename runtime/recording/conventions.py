"""The names of spans, attributes and events in a recording, after OpenTelemetry's conventions.

The GenAI conventions (open-telemetry/semantic-conventions-genai) are in development, and their
names may change. These constants keep a release of Caesura independent of the installed packages.
"""

SCOPE = "caesura"
"""The instrumentation scope of all spans."""

# -- operations, the first word of a span's name ---------------------------------------------------

INVOKE_AGENT = "invoke_agent"
CHAT = "chat"
EXECUTE_TOOL = "execute_tool"

# -- GenAI attributes ------------------------------------------------------------------------------

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
AGENT_NAME = "gen_ai.agent.name"
CONVERSATION_ID = "gen_ai.conversation.id"
REQUEST_MODEL = "gen_ai.request.model"
REQUEST_STREAM = "gen_ai.request.stream"
REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens"
REQUEST_TEMPERATURE = "gen_ai.request.temperature"
REQUEST_TOP_P = "gen_ai.request.top_p"
REQUEST_TOP_K = "gen_ai.request.top_k"
REQUEST_SEED = "gen_ai.request.seed"
REQUEST_PRESENCE_PENALTY = "gen_ai.request.presence_penalty"
REQUEST_FREQUENCY_PENALTY = "gen_ai.request.frequency_penalty"
RESPONSE_ID = "gen_ai.response.id"
FINISH_REASONS = "gen_ai.response.finish_reasons"
TIME_TO_FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
"""All tokens of a turn's input, those in the cache too."""
CACHED_TOKENS = "gen_ai.usage.cache_read.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
REASONING_TOKENS = "gen_ai.usage.reasoning.output_tokens"
TOOL_NAME = "gen_ai.tool.name"
TOOL_CALL_ID = "gen_ai.tool.call.id"
TOOL_TYPE = "gen_ai.tool.type"
ERROR_TYPE = "error.type"
SESSION_ID = "session.id"
"""The session's name, which the client chose."""
USER_ID = "user.id"
"""The user that the request names, or a digest of it."""

# Content, which is sent only on request.
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_RESULT = "gen_ai.tool.call.result"
FOLLOW_UP_KEPT = "caesura.follow_up.kept"
FOLLOW_UP_SENT = "caesura.follow_up.sent"
"""On a chat whose history no longer continues: excerpts of what is remembered and what came."""
CONTENT = (
    INPUT_MESSAGES,
    OUTPUT_MESSAGES,
    TOOL_ARGUMENTS,
    TOOL_RESULT,
    FOLLOW_UP_KEPT,
    FOLLOW_UP_SENT,
)

# -- values of these attributes --------------------------------------------------------------------

VLLM = "vllm"
"""The provider's name, which the conventions do not define yet."""
FUNCTION = "function"
CANCELLED = "cancelled"
"""The error type of a cancelled run, turn or call."""
REASONS = {"stop": "stop", "length": "length", "call": "tool_calls", "calls": "tool_calls"}
"""OpenAI's finish reason for each reason of a turn or a run."""
PART_REASONS = {"stop": "stop", "length": "length", "call": "tool_call"}
"""The finish reason for each reason of a turn, by the schema of output messages."""

# -- Caesura's own names ---------------------------------------------------------------------------

REQUEST_ID = "caesura.request.id"
"""On a chat: the client's id of the engine's request. The engine may append `-` and a suffix.

On a run: that of its first turn.
"""
TENANT = "caesura.tenant"
"""On a run: the name of the API key that asked for it."""
SESSION_PARENT = "caesura.session.parent"
"""On a run: the name of the session that started its session."""
X_REQUEST_ID = "caesura.x_request_id"
"""On a run: the `X-Request-Id` of the HTTP answer."""
REQUEST_SENT = "caesura.request_sent"
"""An event of a chat: its tokens were rendered and handed to the engine."""
TURNS = "caesura.turns"
CALLS = "caesura.calls"
LIMIT = "caesura.limit"
APPENDED_TOKENS = "caesura.appended_tokens"
"""Tokens of the input that were new: a resumed turn sends nothing again."""
INPUT_LEFT_OUT = "caesura.input.left_out"
"""On a chat: the number of messages that its whole input lacks, since it is bounded."""
PAUSE_HANDLING = "caesura.pause.handling"
PAUSE_SECONDS = "caesura.pause.seconds"
PAUSE_QUEUE_SECONDS = "caesura.pause.queue_seconds"
PAUSE_CONTEXT_TOKENS = "caesura.pause.context_tokens"
PAUSE_CACHED_TOKENS = "caesura.pause.cached_tokens"
PAUSE_LOADED_TOKENS = "caesura.pause.loaded_tokens"
FOLLOW_UP_OUTCOME = "caesura.follow_up.outcome"
FOLLOW_UP_WHY = "caesura.follow_up.why"
FOLLOW_UP_FIELD = "caesura.follow_up.field"
FOLLOW_UP_MESSAGE = "caesura.follow_up.message"
"""The place of the message that the field belongs to, from 0."""
FOLLOW_UP_SPLICED_TOKENS = "caesura.follow_up.spliced_tokens"
SPELLED_TOKENS = "caesura.spelled_tokens"
"""On a chat: special tokens that its new messages spelled, and that were rendered as text."""
TOOL_CALL_DIGEST = "caesura.tool.call_digest"
"""A digest of the tool's name and its arguments, equal for equal calls to one server."""
TOOL_ATTEMPTS = "caesura.tool.attempts"
TOOL_ARTIFACTS = "caesura.tool.artifacts"
PERSON_SECONDS = "caesura.person.seconds"
CALL_MALFORMED = "caesura.call_malformed"
"""An event of a chat: the model began a call that could not be parsed."""
PERSON_APPROVED = "caesura.person.approved"
"""Of an event of a call that waited for a person's approval: whether it was given."""
MARK = "caesura."
"""The prefix of the events that tools mark, and of their attributes."""

# -- the engine's states of a request, as spans that are sent and not recorded ---------------------

ENGINE_SCOPE = "caesura.engine"
"""The instrumentation scope of these spans."""
PHASES = {
    "waiting": "queue",
    "loading": "load",
    "prefill": "prefill",
    "recompute": "recompute",
    "decode": "decode",
    "paused": "pause",
    "offloaded": "pause",
    "dropped": "pause",
}
"""The span's name of each state in the records."""
KV_STATES = {"paused": "device", "offloaded": "host", "dropped": "dropped"}
"""Where the KV cache of a paused request is, by its state in the records."""
PHASE = "caesura.phase"
KV_STATE = "caesura.kv.state"
KV_BLOCKS = "caesura.kv.blocks"
KV_HOST_BLOCKS = "caesura.kv.host_blocks"
CONTEXT_TOKENS = "caesura.context_tokens"

URL = "caesura.url"
"""On a run: its address on the page."""
