"""What Anthropic clients say, and a tool of theirs."""

WEATHER = {
    "name": "weather",
    "description": "Tell the weather.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
HELLO = {"role": "user", "content": "Hello"}
