"""What is known of a model from its files, without starting an engine."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """How a model writes calls and thinking, as far as its files tell.

    `formats` are the call formats: given, or `detected`. `problem` says why they do not fit the
    model; empty if they do. `regions` are the markers of thinking. `reasoning_parser` is the parser
    of vLLM's whose name is most like the model's type or directory; empty if none is.
    `template_characters` is the length of the chat template, None without one.
    """

    formats: tuple[str, ...]
    detected: bool
    problem: str
    regions: tuple[str, ...]
    reasoning_parser: str
    template_characters: int | None
    renders_itself: bool
    """Whether mistral-common renders the messages, without a chat template."""
    messages: tuple[str, ...] = ()
    """What is written otherwise than clients send it, and what is lost, in words."""
    pictures_in: tuple[str, ...] = ()
    """The roles in whose messages the template writes pictures: user, tool."""


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """A group of layers that share blocks of the KV cache.

    A block holds `block_tokens` tokens. A request has `bytes_per_token` in all `layers`, for the
    last `window` tokens if that is above 0, or `bytes_per_request` whatever its length.
    """

    kind: str
    layers: int
    block_tokens: int
    bytes_per_token: int
    bytes_per_request: int
    window: int


@dataclass(frozen=True, slots=True)
class LayoutFacts:
    """The groups of a model's KV cache, and what is done with it at a pause.

    Each reason is empty if there is none: why the KV `discards` at each pause, why a request gives
    up its blocks `all_at_once`, why there are `no_follow_ups`, and why it is `not_swapped`.
    `missing` says why vLLM told no groups, and `configured` what the configuration tells then.
    """

    groups: tuple[GroupFacts, ...]
    discards: str = ""
    all_at_once: str = ""
    no_follow_ups: str = ""
    not_swapped: str = ""
    missing: str = ""
    configured: str = ""
