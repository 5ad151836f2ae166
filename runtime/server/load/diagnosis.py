"""Why a prompt could not be served from the cache: it is compared with that of an earlier answer.

Two prompts are the same if they told the model the same (`caesura.scheduler.histories`), as where
follow-ups are spliced: a call that a client has spelled anew is no change. Only digests and counts
are kept, of the last answers. A later request of the same key names one of these by its id.
"""

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Literal

from caesura.runtime.engine import Engine
from caesura.runtime.run.context import Plan
from caesura.scheduler.histories import History, difference, place_of
from caesura.scheduler.messages import Message

MAX_KEPT = 1024
MAX_MESSAGES = 131_072
"""The most messages of the prompts that are kept, about 40 bytes each."""
Change = Literal["model", "system", "tools", "effort", "messages", "compacted", "other"]
"""What of a request differs first: its model, a part of its prompt, or what else shapes it.

With `compacted`, a summary stands where the earlier prompt has the messages.
"""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a prompt told the model, and the sizes of its messages in characters."""

    model: str
    history: History
    system: int
    """How many system messages it begins with."""
    sizes: "array[int]"
    effort: object = None
    """The effort of reasoning that the chat template gets."""


@dataclass(frozen=True, slots=True)
class Kept:
    """An answer's prompt, and how many tokens it had."""

    prompt: Prompt
    tokens: int


@dataclass(frozen=True, slots=True)
class Miss:
    """What differs from an earlier prompt, which had `tokens`, and how many of them this costs.

    The last is a guess by the characters behind the difference: nothing tells which tokens these
    would have been. `place` is that of the first message that differs, where one does.
    """

    change: Change
    tokens: int
    missed_tokens: int
    place: int | None = None

    def missed(self, cached_tokens: int | None) -> int:
        """Return how many tokens are missed, by what the engine found in its cache, if known."""
        if cached_tokens is None:
            return self.missed_tokens
        return max(0, self.tokens - cached_tokens)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The prompt of a request, compared with that of the answer which the client names."""

    diagnoses: "Diagnoses"
    tenant: str
    prompt: Prompt
    names: bool
    """Whether the request names such an answer."""
    before: Kept | None
    """The prompt of that answer, if it is known."""
    miss: Miss | None
    """What differs from it, if anything does."""

    def keep(self, answer: str, tokens: int) -> None:
        """Keep the prompt, which had so many tokens, for requests that name this answer."""
        self.diagnoses.keep(self.tenant, answer, Kept(self.prompt, tokens))


class Diagnoses:
    """The prompts of recent answers, by the tenant that asked and the answer's id."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], Kept] = OrderedDict()
        self._messages = 0

    def keep(self, tenant: str, answer: str, kept: Kept) -> None:
        """Keep an answer's prompt, and forget the oldest ones beyond the most."""
        self._kept[tenant, answer] = kept
        self._messages += len(kept.prompt.sizes)
        while len(self._kept) > MAX_KEPT or self._messages > MAX_MESSAGES:
            _, oldest = self._kept.popitem(last=False)
            self._messages -= len(oldest.prompt.sizes)

    def of(self, tenant: str, answer: str) -> Kept | None:
        """Return the prompt of an answer, or None if it is not kept."""
        return self._kept.get((tenant, answer))

    async def compare(
        self, engine: Engine, tenant: str, plan: Plan, answer: str | None
    ) -> Diagnosis:
        """Return a request's prompt beside that of an earlier `answer` of the same tenant."""
        prompt = await prompt_of(engine, plan)
        before = None if answer is None else self.of(tenant, answer)
        if before is None:
            return Diagnosis(self, tenant, prompt, answer is not None, None, None)
        length = before.prompt.history.messages
        begin = await _history(engine, replace(plan, messages=plan.messages[:length]))
        return Diagnosis(self, tenant, prompt, True, before, miss(before, prompt, begin))


async def prompt_of(engine: Engine, plan: Plan) -> Prompt:
    """Return what the prompt of a plan tells the model."""
    sizes = array("I", (len(repr(message)) for message in plan.messages))
    effort = plan.spec.template.get("reasoning_effort")
    model = plan.spec.adapter or engine.model
    return Prompt(model, await _history(engine, plan), _system(plan.messages), sizes, effort)


async def _history(engine: Engine, plan: Plan) -> History:
    """Return what a plan's messages tell the model, for every user."""
    return await engine.history(plan.messages, replace(plan.spec, owner=""))


def miss(before: Kept, now: Prompt, begin: History) -> Miss | None:
    """Return what keeps a prompt from being continued, or None if the later one begins with it.

    `begin` is what the later one told with as many messages as the earlier one has.
    """
    old, tokens = before.prompt, before.tokens
    if old.model != now.model:
        return Miss("model", tokens, tokens)
    field = difference(begin, old.history)
    if field is None:
        return None
    if field == "tools":
        return Miss("tools", tokens, tokens)
    if not field.startswith("messages"):
        return Miss("effort" if old.effort != now.effort else "other", tokens, tokens)
    place = place_of(field)
    if place is None:
        return Miss("messages", tokens, tokens)
    if place < max(old.system, now.system):
        return Miss("system", tokens, tokens, place)
    share = sum(old.sizes[place:]) / max(1, sum(old.sizes))
    return Miss("messages", tokens, round(tokens * share), place)


def _system(messages: Sequence[Message]) -> int:
    return len([*takewhile(lambda each: each.get("role") == "system", messages)])
