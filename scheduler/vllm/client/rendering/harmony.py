"""What vLLM's own server writes behind a turn of gpt-oss: OpenAI's library, and no template.

The library tells the model the same as the chat template, in other tokens: it does not quote
results, and a late system message stays one of the developer.
"""

from collections.abc import Collection

from vllm.entrypoints.openai.parser.harmony_utils import (
    get_encoding,
    parse_chat_input_to_harmony_message,
    render_for_completion,
)

from caesura.intercept.calls.formats import HARMONY
from caesura.scheduler.errors import UsageError
from caesura.scheduler.vllm.client.rendering.render import Behind, Continuation

ANSWER_END = "<|end|>"
"""What ends an earlier answer; the model ends its last one with `<|return|>`."""


def harmony_behind(after: Continuation, ends: Collection[int]) -> Behind:
    """Return what vLLM's server writes behind a turn that one of the tokens `ends` may have ended.

    Raises `UsageError` for messages that the library refuses.
    """
    calls = after.turn.get("tool_calls") or ()
    names = {call["id"]: call["function"]["name"] for call in calls}
    try:
        told = [
            each
            for message in after.messages
            for each in parse_chat_input_to_harmony_message(message, names)
        ]
        tokens = render_for_completion(told)
    except Exception as error:  # the library's errors are of many classes
        raise UsageError(f"openai_harmony refused the messages: {error}") from error
    text = HARMONY.closes if calls else ANSWER_END
    (end,) = get_encoding().encode(text, allowed_special="all")
    if after.last_token == end:
        return Behind(tokens)
    return Behind([end, *tokens], instead=after.last_token in ends)
