"""Plays held-out scenarios: the model writes, calls are answered, until the final answer."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

import segments
from decode import greedy
from heldout import Scenario
from tasks.arithmetic import calculate
from tasks.exchange import Call, contains
from transformers import PreTrainedModel, PreTrainedTokenizerBase

BLOCK = re.compile(r"<tool_call>\n(.*?)\n</tool_call>", re.DOTALL)
OPEN = re.compile(r"\[(\w+)\(([^\[\]]*)\) ->$")
RESULT = re.compile(r"\[\w+\([^\[\]]*\) -> [^\]]*\] ")
ROUNDS = 8
LONGEST_TURN = 220


@dataclass
class Played:
    """What the model did in one scenario."""

    scenario: Scenario
    ids: list[int]
    steps: list[tuple[str, ...]] = field(default_factory=list)
    inline: list[str] = field(default_factory=list)
    text: str = ""
    answer: str | None = None
    broken: bool = False

    @property
    def over(self) -> bool:
        """Tell whether there is nothing more to generate."""
        return self.broken or self.answer is not None

    @property
    def right(self) -> bool:
        """Tell whether every call was exactly right and the answer has every value."""
        asked = self.scenario.asked
        steps = [tuple(call.key for call in step) for step in asked.steps]
        inline = [piece.key for piece in asked.answer if isinstance(piece, Call)]
        if self.broken or self.answer is None or (self.steps, self.inline) != (steps, inline):
            return False
        said = RESULT.sub("", self.answer)
        if asked.values:
            return all(contains(said, value) for value in asked.values)
        return said == "".join(piece for piece in asked.answer if isinstance(piece, str))


class Player:
    """A model together with the loop that answers its calls."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.end = tokenizer.convert_tokens_to_ids(segments.IM_END)
        self.stops = [[self.end], self.encode(segments.INLINE_END)]

    def encode(self, text: str) -> list[int]:
        """Encode one piece of text as the runtime does."""
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def play(self, scenarios: list[Scenario]) -> list[Played]:
        """Play scenarios as one batch, with greedy decoding."""
        games = [Played(s, segments.encode(s.given, self.encode)[0]) for s in scenarios]
        for _ in range(ROUNDS):
            if running := [game for game in games if not game.over]:
                for game, new in zip(running, self.generate([g.ids for g in running]), strict=True):
                    self.advance(game, new)
        return games

    def generate(self, prompts: list[list[int]]) -> list[list[int]]:
        """Continue prompts greedily, each up to its end of turn or its in-line call."""
        return greedy(self.model, prompts, self.tokenizer.pad_token_id, self.stops, LONGEST_TURN)

    def advance(self, game: Played, new: list[int]) -> None:
        """Take what the model wrote and append what the runtime would append."""
        game.ids += new
        game.text += self.tokenizer.decode(new)
        opened = OPEN.search(game.text)
        if opened:
            call = Call(opened[1], {"expression": opened[2]}, "")
            game.inline.append(call.key)
            text = segments.inline_result(self.answer(game, call))
            game.text += text
            game.ids += self.encode(text)
        elif not new or new[-1] != self.end:
            game.broken = True
        elif blocks := BLOCK.findall(game.text):
            self.respond(game, blocks)
        else:
            game.answer = game.text.removesuffix(segments.IM_END)

    def respond(self, game: Played, blocks: list[str]) -> None:
        """Answer the calls of one turn and open the next one."""
        try:
            read = [json.loads(block) for block in blocks]
            calls = [Call(item["name"], item["arguments"], "") for item in read]
        except (ValueError, KeyError, TypeError):
            game.broken = True
            return
        game.steps.append(tuple(call.key for call in calls))
        game.ids += self.encode(segments.bridge([self.answer(game, call) for call in calls]))
        game.text = ""

    def answer(self, game: Played, call: Call) -> str:
        """Return the scenario's result of a call; arithmetic that it lacks is worked out."""
        for known in game.scenario.asked.calls:
            if known.key == call.key:
                return known.result
        if call.name == "calculator":
            return calculate(str(call.arguments.get("expression", "")))
        return "error: not found"
