"""What tests ask of the bundled model, and what a grammar makes it say."""

from caesura.scheduler.messages import Message, Sampling, TextFormat
from caesura.tools.calculator.tool import calculator

LOOKUP = {
    "type": "function",
    "function": {
        "name": "lookup",
        "description": "Look a word up.",
        "parameters": {
            "type": "object",
            "properties": {"word": {"type": "string", "enum": ["alpha", "beta"]}},
            "required": ["word"],
            "additionalProperties": False,
        },
    },
}
TOOLS = [calculator.spec(), LOOKUP]
AGE = {"type": "integer", "minimum": 0, "maximum": 150}
PERSON = TextFormat(
    "json_schema",
    {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 12}, "age": AGE},
        "required": ["name", "age"],
        "additionalProperties": False,
    },
)
HELLO: list[Message] = [{"role": "user", "content": "Hello, who are you?"}]


THOUGHT, ANSWER = 'Is it <tool_call>{"name": "calculator"}</tool_call>?', "It is four."
WRITTEN = f"<think>\n{THOUGHT}\n</think>\n\n{ANSWER}"
FORCED = Sampling(temperature=0, max_tokens=200, text=TextFormat("choice", (WRITTEN,)))
ASKED: list[Message] = [{"role": "user", "content": "What is 2+2?"}]
