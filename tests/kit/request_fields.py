"""One table of the fields that say how tokens are sampled: what each may be, and what arrives.

It is data alone: the checks by client libraries read it too, whose environment has neither vLLM nor
Caesura.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
COMPLETIONS = "/v1/completions"
OURS = (CHAT, RESPONSES, MESSAGES)
"""The routes whose requests this server reads; vLLM's own server reads those of completions."""
BODIES: Mapping[str, Mapping[str, Any]] = {
    CHAT: {"messages": [{"role": "user", "content": "Hello"}]},
    RESPONSES: {"input": "Hello"},
    MESSAGES: {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 100},
    COMPLETIONS: {"prompt": "Hello"},
}
"""What a request of a route says beside its model and the fields of the table."""
SAMPLED = "message.output_text.logprobs"


@dataclass(frozen=True)
class Refused:
    """A value that a field may not have, the path that the error names, and some of its words."""

    value: Any
    param: str
    words: str


@dataclass(frozen=True)
class RequestField:
    """A field of requests.

    `value` is one that a request may send, and `sampled` that of the setting of the same name in
    `Sampling`; a tuple where JSON has a list. `params` are the settings of vLLM's `SamplingParams`
    that hold it then. `names` are the field's names on routes that call it otherwise, None where
    they have none. `beside` are fields without which it may not be sent, by route.
    """

    name: str
    value: Any
    sampled: Any
    params: Mapping[str, Any] = field(default_factory=dict)
    refused: tuple[Refused, ...] = ()
    names: Mapping[str, str | None] = field(default_factory=dict)
    beside: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    setting: str = ""
    """The setting's name in `Sampling`, where it is not the field's."""

    def on(self, route: str) -> str | None:
        """Return the field's name on a route."""
        return self.names.get(route, self.name)

    def body(self, route: str, value: Any) -> dict[str, Any]:
        """Return the body of a request with this value, without its model."""
        return {**BODIES[route], **self.beside.get(route, {}), str(self.on(route)): value}


NOT_OF_MESSAGES: Mapping[str, str | None] = {MESSAGES: None}


def _number(
    name: str, value: float, refused: Mapping[Any, str], names: Mapping[str, str | None]
) -> RequestField:
    """A field with one number, which vLLM calls the same."""
    wrong = tuple(Refused(value, name, words) for value, words in refused.items())
    return RequestField(name, value, value, {name: value}, wrong, names)


FIELDS = (
    _number(
        "temperature",
        0.5,
        {
            3: "less than or equal to 2",
            -0.1: "greater than or equal to 0",
            "hot": "valid number",
            float("nan"): "finite",
        },
        {},
    ),
    _number(
        "top_p",
        0.9,
        {
            float("nan"): "finite",
            0: "greater than 0",
            1.5: "less than or equal to 1",
        },
        {},
    ),
    _number("top_k", 5, {2**64: "less than", -2: "greater than or equal to -1"}, {}),
    _number(
        "min_p",
        0.1,
        {2: "less than or equal to 1", -1: "greater than or equal to 0"},
        NOT_OF_MESSAGES,
    ),
    _number(
        "min_tokens",
        3,
        {2**64: "less than", -1: "greater than or equal to 0"},
        NOT_OF_MESSAGES,
    ),
    _number(
        "seed",
        7,
        {2**70: "less than", -(2**70): "greater than", 0.5: "integer"},
        NOT_OF_MESSAGES,
    ),
    _number(
        "presence_penalty",
        1.0,
        {3: "less than or equal to 2", -3: "greater than or equal to -2"},
        NOT_OF_MESSAGES,
    ),
    _number(
        "frequency_penalty",
        -1.0,
        {3: "less than or equal to 2", -3: "greater than or equal to -2"},
        NOT_OF_MESSAGES,
    ),
    _number(
        "repetition_penalty",
        1.2,
        {3: "less than or equal to 2", 0: "greater than 0"},
        NOT_OF_MESSAGES,
    ),
    RequestField(
        "max_tokens",
        9,
        9,
        {"max_tokens": 9},
        (
            Refused(0, "max_tokens", "greater than or equal to 1"),
            Refused("many", "max_tokens", "integer"),
        ),
        {RESPONSES: "max_output_tokens"},
    ),
    RequestField(
        "max_completion_tokens",
        9,
        9,
        {"max_tokens": 9},
        (Refused(0, "max_completion_tokens", "greater than or equal to 1"),),
        {RESPONSES: None, MESSAGES: None, COMPLETIONS: None},
        {CHAT: {"max_tokens": 10}},  # OpenAI's newer field wins
        setting="max_tokens",
    ),
    RequestField(
        "stop",
        ["zebra", "\n\n"],
        ("zebra", "\n\n"),
        {},  # the watch finds them in the text
        (
            Refused([""], "stop[0]", "must not be empty"),
            Refused(["x"] * 65, "stop", "at most 64 items"),
        ),
        {MESSAGES: "stop_sequences"},
    ),
    RequestField("stop", "zebra", ("zebra",), {}, (), NOT_OF_MESSAGES),
    RequestField(
        "stop_token_ids",
        [7, 8],
        (7, 8),
        {"stop_token_ids": [7, 8]},
        (
            Refused([-1], "stop_token_ids[0]", "greater than or equal to 0"),
            Refused([2**31], "stop_token_ids[0]", "less than"),
            Refused([7] * 1025, "stop_token_ids", "at most 1024 items"),
        ),
        NOT_OF_MESSAGES,
    ),
    RequestField(
        "logit_bias",
        {"5": -100, "6": 2.5},
        {5: -100, 6: 2.5},
        {"logit_bias": {5: -100, 6: 2.5}},
        (
            Refused({"x": 1}, "logit_bias.x", "integer"),
            Refused({"5": 101}, "logit_bias", "less than or equal to 100"),
        ),
        NOT_OF_MESSAGES,
    ),
    RequestField(
        "bad_words",
        ["hm"],
        ("hm",),
        {"bad_words": ["hm"]},
        (
            Refused([""], "bad_words[0]", "must not be empty"),
            Refused(["x"] * 1025, "bad_words", "at most 1024 items"),
        ),
        {MESSAGES: None, COMPLETIONS: None},
    ),
    RequestField(
        "top_logprobs",
        4,
        4,
        {"logprobs": 4},
        (
            Refused(21, "top_logprobs", "less than or equal to 20"),
            Refused(-1, "top_logprobs", "greater than or equal to 0"),
        ),
        {MESSAGES: None, COMPLETIONS: None},
        {CHAT: {"logprobs": True}, RESPONSES: {"include": [SAMPLED]}},
        setting="logprobs",
    ),
    RequestField(
        "logprobs",
        True,
        0,
        {"logprobs": 0},
        (),
        {RESPONSES: None, MESSAGES: None, COMPLETIONS: None},
    ),
    RequestField(
        "logprobs", False, None, {}, (), {RESPONSES: None, MESSAGES: None, COMPLETIONS: None}
    ),
)


def named(name: str) -> RequestField:
    """Return the first row of a field."""
    return next(each for each in FIELDS if each.name == name)


def taken(*routes: str) -> Iterator[tuple[str, RequestField]]:
    """Yield what each of the routes takes."""
    yield from ((route, each) for route in routes for each in FIELDS if each.on(route))


def refused(*routes: str) -> Iterator[tuple[str, RequestField, Refused]]:
    """Yield what each of the routes refuses."""
    for route, each in taken(*routes):
        yield from ((route, each, wrong) for wrong in each.refused)
