"""A log that keeps what the engine knows of sampled tokens, and checks that it is whole."""

from collections.abc import Sequence

from caesura.scheduler.session_log import LoggedTurn, MemoryLog, SampledFacts


class Known(MemoryLog):
    """Keeps log probabilities and versions of the weights, turn by turn."""

    takes_facts = True

    def __init__(self, key: str = "key") -> None:
        super().__init__(key)
        self.logprobs: list[list[float]] = []
        self.versions: list[list[str | None]] = []

    def begin(self, turn: LoggedTurn) -> None:
        super().begin(turn)
        self.logprobs.append([])
        self.versions.append([])

    def sampled(self, tokens: Sequence[int], facts: SampledFacts | None = None) -> None:
        super().sampled(tokens, facts)
        assert facts is not None and facts.logprobs is not None
        assert len(facts.logprobs) == len(tokens) == sum(count for _, count in facts.weights)
        self.logprobs[-1] += facts.logprobs
        self.versions[-1] += [name for name, count in facts.weights for _ in range(count)]

    def contexts(self) -> list[tuple[int, ...]]:
        """Return the tokens up to the end of each turn."""
        context: tuple[int, ...] = ()
        found = []
        for turn in self.turns:
            context = (*(() if turn.replaces else context), *turn.appended, *turn.sampled)
            found.append(context)
        return found
