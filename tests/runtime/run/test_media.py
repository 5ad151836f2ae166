"""Media of messages: fetched within the rules, and refused by the path of their part."""

import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest

from caesura.runtime.run import media
from caesura.runtime.run.media import MediaFetcher, MediaRefused
from caesura.scheduler.messages import MediaRules
from tests.tools.net.sites import site

__all__ = ["site"]

PICTURE = b"\x89PNG and more"
INLINE = f"data:image/png;base64,{base64.b64encode(PICTURE).decode()}"
RULES = MediaRules({"image": 2})


@pytest.fixture
async def fetcher() -> AsyncIterator[MediaFetcher]:
    made = MediaFetcher(allow_private=True)
    yield made
    await made.aclose()


def asked(*urls: str) -> list[dict[str, Any]]:
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return [
        {"role": "system", "content": "See."},
        {"role": "user", "content": [{"type": "text", "text": "What is it?"}, *parts]},
    ]


async def test_a_picture_is_fetched_once_the_rules_allow_it(fetcher, site) -> None:
    url = site.says("/a.png", PICTURE, Content_Type="image/png")
    assert await fetcher.inlined(asked(url), RULES) == asked(INLINE)
    assert len(site.seen) == 1
    assert await fetcher.inlined(asked(INLINE), RULES) == asked(INLINE)
    assert len(site.seen) == 1


async def test_a_private_address_is_not_asked(site) -> None:
    fetcher = MediaFetcher()
    with pytest.raises(MediaRefused, match="no public address") as refused:
        await fetcher.inlined(asked(site.says("/a.png", PICTURE)), RULES)
    assert refused.value.param == "messages[1].content[1]"
    assert site.seen == []
    await fetcher.aclose()


@pytest.mark.parametrize(
    ("url", "rules", "told"),
    [
        (INLINE, MediaRules(), "this model takes no images; leave the part out"),
        ("file:///etc/passwd", RULES, "of http, https or data, got file"),
        ("https://b.org/x", MediaRules({"image": 1}, ("a.org",)), "b.org is not among"),
    ],
)
async def test_what_the_rules_exclude_is_refused(fetcher, url, rules, told) -> None:
    with pytest.raises(MediaRefused, match=told):
        await fetcher.inlined(asked(url), rules)


async def test_more_pictures_than_the_model_takes(fetcher) -> None:
    with pytest.raises(MediaRefused, match="more than 2 parts of kind image") as refused:
        await fetcher.inlined(asked(INLINE, INLINE, INLINE), RULES)
    assert refused.value.param == "messages[1].content[3]"


async def test_a_file_of_another_type_is_refused(fetcher, site) -> None:
    page = site.says("/page", b"<html>", Content_Type="text/html")
    with pytest.raises(MediaRefused, match="did not answer with image"):
        await fetcher.inlined(asked(page), RULES)


async def test_the_bytes_of_a_conversation_are_bounded(fetcher, site, monkeypatch) -> None:
    monkeypatch.setattr(media, "MAX_FETCHED_BYTES", len(PICTURE))
    url = site.says("/a.png", PICTURE, Content_Type="image/png")
    with pytest.raises(MediaRefused, match="have more than"):
        await fetcher.inlined(asked(url, url), RULES)


def shown(*roles: str) -> list[dict[str, Any]]:
    """Return messages of these roles, each with a text and a picture."""
    picture = {"type": "image_url", "image_url": {"url": INLINE}}
    content = [{"type": "text", "text": "See:"}, picture]
    return [{"role": role, "content": content} for role in roles]


async def test_a_picture_in_a_result_becomes_a_sentence_for_a_model_of_text(fetcher) -> None:
    (made,) = await fetcher.inlined(shown("tool"), MediaRules())
    assert made["content"] == "See:\n[A picture was here. This model takes no images.]"
    sound = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}
    (made,) = await fetcher.inlined([{"role": "tool", "content": [sound]}], RULES)
    assert made["content"] == "[A sound was here. This model takes no audio.]"
    with pytest.raises(MediaRefused, match="takes no images"):
        await fetcher.inlined(shown("tool", "user"), MediaRules())


@pytest.mark.parametrize(
    ("roles", "most", "kept"),
    [
        (["tool"] * 4, 4, [0, 1, 2, 3]),
        (["tool"] * 5, 4, [1, 2, 3, 4]),
        (["user", "tool", "tool", "tool"], 3, [0, 2, 3]),
        # A quarter of the limit at a time, so that the begin of the prompt changes seldom.
        (["tool"] * 9, 8, [2, 3, 4, 5, 6, 7, 8]),
        (["tool"] * 10, 8, [2, 3, 4, 5, 6, 7, 8, 9]),
        (["tool"] * 11, 8, [4, 5, 6, 7, 8, 9, 10]),
    ],
)
async def test_the_oldest_pictures_of_results_are_left_out(fetcher, roles, most, kept) -> None:
    made = await fetcher.inlined(shown(*roles), MediaRules({"image": most}))
    assert [at for at, each in enumerate(made) if isinstance(each["content"], list)] == kept
    left_out = [each["content"] for at, each in enumerate(made) if at not in kept]
    assert set(left_out) <= {"See:\n[A picture was here. Only the last images are shown.]"}


@pytest.mark.parametrize("messages", [[7], [{"content": [7, {}]}], [{"role": "tool"}]])
def test_messages_of_any_shape_stay_as_they_are(messages: list[Any]) -> None:
    assert media.with_words(messages, MediaRules()) == messages
