"""What differs where a history no longer continues: excerpts of both, where contents are wanted."""

import json
from pathlib import Path
from typing import Any

import pytest

from caesura.runtime.recording import catalog
from caesura.runtime.recording.recorder import Recorder
from caesura.runtime.recording.storage import Store
from caesura.runtime.testing import say
from caesura.runtime.tracing.content import CAPTURE
from caesura.runtime.tracing.differences import BEFORE, BEHIND, Conversations
from caesura.runtime.tracing.masking import Mask, masking
from caesura.scheduler.histories import Histories, difference, length_up_to_answer
from caesura.scheduler.messages import SessionSpec
from tests.kit.spans import Spans, facts

SYSTEM: dict[str, Any] = {"role": "system", "content": "It is Monday."}
USER: dict[str, Any] = {"role": "user", "content": "Is it warm?"}
CALL: dict[str, Any] = {"id": "call_1", "type": "function"} | {
    "function": {"name": "weather", "arguments": '{"city": "Ulm", "days": 2}'}
}
CALLS: dict[str, Any] = {"role": "assistant", "content": "Let me see.", "tool_calls": [CALL]}
RESULT: dict[str, Any] = {"role": "tool", "tool_call_id": "call_1", "content": "12 degrees"}
ANSWER: dict[str, Any] = {"role": "assistant", "content": "Yes."}
NEXT: dict[str, Any] = {"role": "user", "content": "And tomorrow?"}
KEPT: list[Any] = [SYSTEM, USER, CALLS, RESULT, ANSWER]


def called(arguments: str) -> dict[str, Any]:
    return {
        **CALLS,
        "tool_calls": [{**CALL, "function": {"name": "weather"} | {"arguments": arguments}}],
    }


def field_of(sent: list[Any], kept: list[Any]) -> str:
    """The field that the engine names, by the digests of both."""
    spec, histories = SessionSpec(), Histories()
    named = difference(
        histories.of(sent[: length_up_to_answer(sent)], spec), histories.of(kept, spec)
    )
    assert named is not None
    return named


@pytest.mark.parametrize(
    ("at", "changed", "field", "texts"),
    [
        (0, {**SYSTEM, "content": "It is Tuesday."}, "messages[0].content", ("Monday", "Tuesday")),
        (1, {**USER, "role": "system"}, "messages[1].role", ("user", "system")),
        (
            2,
            called('{"days": 3,"city":"Ulm"}'),
            "messages[2].arguments",
            ('"days": 2', '"days": 3'),
        ),
        (3, {**RESULT, "content": "14 degrees"}, "messages[3].content", ("12 deg", "14 deg")),
        (4, {**ANSWER, "content": "No."}, "messages[4].content", ("Yes.", "No.")),
    ],
)
def test_the_texts_around_the_first_difference_are_told(
    at: int, changed: Any, field: str, texts: tuple[str, str]
) -> None:
    conversations = Conversations()
    conversations.keep("jo", KEPT, 2)
    sent = [*KEPT[:at], changed, *KEPT[at + 1 :], NEXT]
    assert field_of(sent, KEPT) == field
    found = conversations.difference("jo", sent, field)
    assert found is not None
    assert texts[0] in found.kept and texts[1] not in found.kept
    assert texts[1] in found.sent and texts[0] not in found.sent
    assert conversations.difference("another", sent, field) is None


def test_of_a_dropped_message_the_one_that_stands_there_instead_is_told() -> None:
    conversations = Conversations()
    conversations.keep("", KEPT, 4)
    sent = [SYSTEM, *KEPT[2:], NEXT]
    assert field_of(sent, KEPT) == "messages[1].role"
    assert conversations.difference("", sent, "messages[1].role") == ("user", "assistant")
    # What the model wrote within its run may be no part of what a client saw.
    conversations.keep("me", KEPT, 1)
    assert conversations.difference("me", sent, "messages[1].role") is None


def test_a_long_text_is_cut_around_the_difference() -> None:
    kept = [{**USER, "content": "a" * 9000 + "b" + "c" * 9000}, ANSWER]
    sent = [{**USER, "content": "a" * 9000 + "X" + "c" * 9000}, ANSWER, NEXT]
    conversations = Conversations()
    conversations.keep("", kept, 1)
    found = conversations.difference("", sent, "messages[0].content")
    assert found is not None
    behind = "c" * (BEHIND - 1) + "…"
    assert found == (f"…{'a' * BEFORE}b{behind}", f"…{'a' * BEFORE}X{behind}")


def test_of_sessions_that_end_with_the_same_words_the_alike_one_is_told() -> None:
    conversations = Conversations()
    own = [SYSTEM, {**USER, "content": "Mine?"}, ANSWER]
    conversations.keep("", own, 2)
    conversations.keep("", [{**SYSTEM, "content": "Else."}, USER, ANSWER], 2)
    sent = [{**SYSTEM, "content": "It is Sunday."}, *own[1:], NEXT]
    found = conversations.difference("", sent, "messages[0].content")
    assert found is not None and found.kept == "It is Monday."


def test_a_mask_sees_whole_texts_and_may_leave_no_difference() -> None:
    secrets = ["open sesame", "open barley"]
    kept, sent = ([{**USER, "content": f"Say {word}."}, ANSWER] for word in secrets)
    conversations = Conversations()
    conversations.keep("", kept, 1)
    asked = "", [*sent, NEXT], "messages[0].content"
    assert conversations.difference(*asked) == ("Say open sesame.", "Say open barley.")

    def hide(text: str) -> str:
        return text.replace(secrets[0], "***").replace(secrets[1], "***")

    with masking(Mask(hide, "mine")):
        assert conversations.difference(*asked) is None


def test_the_memory_is_bounded() -> None:
    conversations = Conversations(max_conversations=2, max_characters=100)
    for number in range(5):
        conversations.keep("", [{**USER, "content": str(number)}, ANSWER], 1)
    assert len(conversations) == 2
    conversations.keep("", [{**USER, "content": "x" * 90}, ANSWER], 1)
    assert len(conversations) == 2
    conversations.keep("", [{**USER, "content": "y" * 90}, ANSWER], 1)
    assert len(conversations) == 1
    picture = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}]
    conversations.keep("", [{**USER, "content": picture}, ANSWER], 1)
    assert len(conversations) == 1


async def asked_twice(serve_script: Any, **options: Any) -> None:
    """Two requests that our own server answers; the second one has changed the first message."""
    served = await serve_script([say("Yes."), say("No.")], **options)
    first = [SYSTEM, USER]
    again = [{**SYSTEM, "content": "It is Tuesday."}, USER, ANSWER, NEXT]
    for messages in (first, again):
        status, told = await served.chat(messages=messages, server_tools=[])
        assert status == 200, told
    await served.app.close()


async def test_a_recording_with_contents_has_the_excerpts(
    serve_script: Any, tmp_path: Path
) -> None:
    store = Store(tmp_path / "traces.sqlite")
    with Recorder(store, "test", "serve", content=True) as recorder:
        await asked_twice(serve_script, recorder=recorder)
    (told,) = changed(store, recorder)
    assert told["caesura.follow_up.field"] == "messages[0].content"
    assert told["caesura.follow_up.message"] == 0
    assert told["caesura.follow_up.kept"] == "It is Monday."
    assert told["caesura.follow_up.sent"] == "It is Tuesday."


async def test_without_contents_only_the_place_is_told(
    serve_script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def computed(*_: Any) -> None:
        raise AssertionError("nobody wants contents")

    monkeypatch.setattr(Conversations, "keep", computed)
    monkeypatch.setattr(Conversations, "difference", computed)
    store = Store(tmp_path / "traces.sqlite")
    with Recorder(store, "test", "serve", content=False) as recorder:
        await asked_twice(serve_script, recorder=recorder)
    (told,) = changed(store, recorder)
    assert told["caesura.follow_up.field"] == "messages[0].content"
    assert told["caesura.follow_up.message"] == 0
    assert not {"caesura.follow_up.kept", "caesura.follow_up.sent"} & set(told)


async def test_excerpts_that_are_sent_are_not_recorded_without_contents(
    serve_script: Any, tmp_path: Path, spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CAPTURE, "true")
    store = Store(tmp_path / "traces.sqlite")
    with Recorder(store, "test", "serve", content=False) as recorder:
        await asked_twice(serve_script, recorder=recorder, tracing=spans.processor)
    assert facts(spans.named("chat")[1])["caesura.follow_up.kept"] == "It is Monday."
    (told,) = changed(store, recorder)
    assert "Monday" not in json.dumps(told)


def changed(store: Store, recorder: Recorder) -> list[dict[str, Any]]:
    """The attributes of turns whose history was rendered again."""
    assert recorder.recording is not None
    entries = catalog.entries(store.path, recorder.recording)
    told = [entry["attributes"] for entry in entries if entry["kind"] == "span"]
    return [one for one in told if one.get("caesura.follow_up.why") == "changed"]
