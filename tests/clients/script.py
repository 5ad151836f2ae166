"""What a prompt asks the model to write: texts in `SAY[[...]]END`, one for each turn.

Some suites have prompts of their own, without marks: `KNOWN` holds what they ask for.
"""

import json
import re
from typing import Any

ASSISTANT = "<|im_start|>assistant\n"
"""What the bundled model's chat template writes before an answer."""
OR = "|OR|"
"""What stands between the alternatives of a turn."""
ADD_PARAMETERS = {
    "type": "object",
    "properties": {
        "a": {"type": "integer", "enum": [1, 2]},
        "b": {"type": "integer", "enum": [3, 4]},
    },
    "required": ["a", "b"],
    "additionalProperties": False,
}
"""The parameters of the tool `add`."""
_USER = "<|im_start|>user\n"
_MARK = re.compile(r"SAY\[\[(.*?)\]\]END", re.DOTALL)


def say(*turns: str) -> str:
    """Return a message that makes the model write these texts, one in each of its next turns."""
    return "Please. " + " ".join(f"SAY[[{turn}]]END" for turn in turns)


def either(text: str, *others: str) -> str:
    """Return a turn that is the first of these texts that the request's grammar permits."""
    return OR.join([text, *others])


def call(name: str, **arguments: Any) -> str:
    """Return a call as the bundled model writes it."""
    body = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>\n{body}\n</tool_call>"


KNOWN = {
    "Reply briefly with CANARY_OK.": "CANARY_OK",
    "Call the provided tool with value CANARY_OK.": either(
        call("compatcanary_echo", value="CANARY_OK"), '{"value": "CANARY_OK"}'
    ),
    "Return the requested compatibility status.": '{"status": "ok"}',
}
"""A prompt of compatcanary -> the turn that it asks for; free, this small model runs on."""


def wanted(prompt: str) -> list[str]:
    """Return what is to be written behind a prompt: alternatives, or none to leave it open.

    The last user message with marks, or in `KNOWN`, holds. Its turns are counted by the answers
    that follow it. The begin of the turn that the prompt already holds is left out.
    """
    marked = [at for at in _starts(prompt) if _turns(_message(prompt, at))]
    if not marked:
        return []
    turns = _turns(_message(prompt, marked[-1]))
    answers = prompt[marked[-1] :].split(ASSISTANT)[1:]
    if not answers or len(answers) > len(turns):
        return []
    texts, begun = turns[len(answers) - 1].split(OR), answers[-1]
    return [text.removeprefix(begun) for text in texts if text.startswith(begun)]


def _turns(message: str) -> list[str]:
    known = KNOWN.get(message)
    return _MARK.findall(message) if known is None else [known]


def _starts(prompt: str) -> list[int]:
    return [found.end() for found in re.finditer(re.escape(_USER), prompt)]


def _message(prompt: str, start: int) -> str:
    return prompt[start:].partition("<|im_end|>")[0]
