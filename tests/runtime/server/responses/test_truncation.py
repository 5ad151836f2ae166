"""Shortening a conversation."""

from typing import Any

from caesura.runtime.server.responses.plan import shortened


def roles(text: str) -> list[Any]:
    names = {"s": "system", "u": "user", "a": "assistant", "t": "tool"}
    return [{"role": names[letter], "content": ""} for letter in text]


def left(text: str) -> str:
    found = shortened(roles(text))
    return "" if found is None else "".join(message["role"][0] for message in found)


def test_the_oldest_messages_go_and_the_system_message_stays() -> None:
    assert left("suauauaua") == "suauaua"
    assert left("uatatu") == "u"
    assert left("suataua") == "sua"


def test_the_last_message_of_the_user_is_kept() -> None:
    assert left("su") == left("u") == left("s") == left("suat") == ""
