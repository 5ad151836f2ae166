"""The requests of an application, as a plan sees them: numbers, and who needs whom."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a task.

    `key` is its name in results, the same in every run: `task/row`, `task/row/sample` or
    `task/row/sample/item`. `prompt_tokens` are the tokens of its prompt without the outputs of the
    requests in `needs`, which it holds as well. It decodes at most `max_tokens`. `asks` are models
    that it may call as tools. `row`, `sample` and `item` are its numbers, counted from 0.
    """

    key: str
    task: str
    model: str
    prompt_tokens: int
    max_tokens: int
    needs: tuple[str, ...] = ()
    asks: tuple[str, ...] = ()
    row: int = 0
    sample: int = 0
    item: int = 0


def asked_by(requests: Iterable[Request]) -> Mapping[str, frozenset[str]]:
    """Return by model the models that its requests may call as tools."""
    found: dict[str, set[str]] = {}
    for request in requests:
        if request.asks:
            found.setdefault(request.model, set()).update(request.asks)
    return {model: frozenset(asked) for model, asked in found.items()}


def with_asked(models: Iterable[str], asked: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Return the models with those that they may call as tools, and those that these may call."""
    found: set[str] = set()
    new = set(models)
    while new:
        found |= new
        new = {each for model in new for each in asked.get(model, ())} - found
    return frozenset(found)
