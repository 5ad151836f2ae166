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
