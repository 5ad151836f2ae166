"""A model that writes in one format, without a model: tokens, the engine's watch, the reader."""

import codecs
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from caesura.intercept.calls.events import (
    ArgumentsDelta,
    CallFinished,
    CallMalformed,
    CallStarted,
    Event,
    ReasoningDelta,
    TextDelta,
)
from caesura.intercept.calls.formats import INLINE, REACT, resolve, turn_format
from caesura.intercept.calls.inline import InlineParser
from caesura.intercept.calls.markers import SpelledOpeners
from caesura.intercept.calls.react import ReactParser
from caesura.intercept.calls.thinking import Thinking
from caesura.intercept.calls.vocabulary import Vocabulary
from caesura.intercept.calls.watch import Verdict, Watch, WatchPlan
from caesura.scheduler.messages import Message
from caesura.scheduler.vllm.client.parsing import new_call_id, turn_parser
from caesura.scheduler.vllm.client.parsing.reader import TurnReader
from caesura.scheduler.vllm.tokenizer import vocabulary_from

NAMED_CHARACTERS = 64
"""The longest name that the engine reads in a call; it needs names for expected pauses alone."""
END = "<end>"

MARKERS = {
    "hermes": ["<tool_call>", "</tool_call>"],
    "qwen3_coder": ["<tool_call>", "</tool_call>", "<think>", "</think>"],
    "glm": [
        *("<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
        *("<think>", "</think>"),
    ],
    "seed_oss": ["<seed:tool_call>", "</seed:tool_call>", "<seed:think>", "</seed:think>"],
    "minimax_m2": ["<minimax:tool_call>", "</minimax:tool_call>", "<think>", "</think>"],
    "deepseek_v32": ["｜DSML｜", "<think>", "</think>"],
    "deepseek_v4": ["｜DSML｜", "<think>", "</think>"],
    "deepseek_v41": ["｜DSML｜", "<think>", "</think>"],
    "longcat": ["<longcat_tool_call>", "</longcat_tool_call>"],
    "hunyuan_a13b": ["<tool_calls>", "</tool_calls>", "<think>", "</think>"],
    "internlm": ["<|action_start|>", "<|plugin|>", "<|action_end|>"],
    "llama3_json": ["<|python_tag|>"],
    "pythonic": ["<|python_start|>", "<|python_end|>"],
    "mistral": ["[TOOL_CALLS]"],
    "mistral_v11": ["[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"],
    "deepseek_v3": [
        *("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>"),
        *("<｜tool▁call▁end｜>", "<｜tool▁sep｜>"),
    ],
    "deepseek_v31": [
        *("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>"),
        *("<｜tool▁call▁end｜>", "<｜tool▁sep｜>"),
    ],
    "kimi_k2": [
        *("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>"),
        *("<|tool_call_end|>", "<|tool_call_argument_begin|>", "<think>", "</think>"),
    ],
    "harmony": [],
    "react": [],
    "inline": [],
}
"""The special tokens of each family."""


def row_of(name: str) -> str:
    """The row of the table that a rendering belongs to."""
    return "mistral" if name == "mistral_v11" else name


def byte_characters() -> list[str]:
    """The characters that stand for the bytes 0 to 255 in a byte-level vocabulary."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    table = {byte: chr(byte) for byte in printable}
    table |= {byte: chr(0x100 + index) for index, byte in enumerate(others)}
    return [table[byte] for byte in range(256)]


def byte_level(vocabulary: dict[str, int], special: Sequence[str]) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(special))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=special[-1])


def harmony_tokenizer() -> PreTrainedTokenizerFast:
    """The ids of gpt-oss for bytes and special tokens."""
    from openai_harmony import load_harmony_encoding

    encoding = load_harmony_encoding("HarmonyGptOss")
    special = ["<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>"]
    special += ["<|call|>", "<|return|>"]
    ids = {encoding.encode(text, allowed_special="all")[0]: text for text in special}
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    order = [*printable, *(byte for byte in range(256) if byte not in set(printable))]
    characters = byte_characters()
    texts = [characters[byte] for byte in order]
    texts += [ids.get(id_, f"unused{id_}") for id_ in range(256, max(ids) + 1)]
    return byte_level({text: id_ for id_, text in enumerate(texts)}, special)


@dataclass(frozen=True)
class StandIn:
    """A tokenizer of one family; every byte is a token, so that any text can be cut anywhere."""

    name: str
    tokenizer: Any
    vocabulary: Vocabulary
    ends: frozenset[int]
    byte_ids: tuple[int, ...]

    @property
    def plain(self) -> "StandIn":
        """The same model without markers of its own: it spells all of them."""
        pieces = [self.vocabulary.bytes_of(id_) for id_ in range(len(self.vocabulary))]
        return replace(self, vocabulary=Vocabulary(pieces))

    def by_bytes(self, text: str) -> list[int]:
        """Tokenise with single bytes, the special tokens of the family excepted."""
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def spelled(self, text: str) -> list[int]:
        """Tokenise with single bytes only: special tokens are spelled out."""
        return [self.byte_ids[byte] for byte in text.encode()]


@cache
def stand_in(name: str) -> StandIn:
    if name == "harmony":
        return _stand_in(name, harmony_tokenizer(), {"<|call|>", "<|return|>"})
    return with_markers(name, MARKERS[name])


def with_markers(name: str, markers: Sequence[str]) -> StandIn:
    """A stand-in for a format's models, whose special tokens are `markers`."""
    vocabulary = {character: index for index, character in enumerate(byte_characters())}
    return _stand_in(name, byte_level(vocabulary, [*markers, END]), {END})


def _stand_in(name: str, tokenizer: Any, ends: set[str]) -> StandIn:
    characters = byte_characters()
    return StandIn(
        name,
        tokenizer,
        vocabulary_from(tokenizer),
        frozenset(tokenizer.convert_tokens_to_ids(end) for end in ends),
        tuple(tokenizer.convert_tokens_to_ids(character) for character in characters),
    )


@dataclass(frozen=True)
class Outcome:
    """What became of a turn: where the engine stopped, what the API process made of it."""

    read: int
    """Tokens up to the one at which the engine stopped, that one included."""
    verdict: Verdict | None
    events: tuple[Event, ...]
    message: Message
    overshoot: bytes

    @property
    def summary(self) -> list[tuple[str, ...]]:
        """What happened, however it was cut: texts, finished calls, malformed ones."""
        parts: list[tuple[str, ...]] = []
        for event in self.events:
            if isinstance(event, TextDelta):
                if parts and parts[-1][0] == "text":
                    parts[-1] = ("text", parts[-1][1] + event.text)
                else:
                    parts.append(("text", event.text))
            elif isinstance(event, ReasoningDelta):
                if parts and parts[-1][0] == "reasoning":
                    parts[-1] = ("reasoning", parts[-1][1] + event.text)
                else:
                    parts.append(("reasoning", event.text))
            elif isinstance(event, CallFinished):
                parts.append(("call", event.name, event.arguments))
            elif isinstance(event, CallMalformed):
                parts.append(("malformed", event.text))
        return parts

    @property
    def shown(self) -> str:
        """What the reader has seen."""
        return "".join(part[1] for part in self.summary if part[0] == "text")

    @property
    def reasoning(self) -> str:
        """What the model thought, if it is kept apart."""
        return "".join(part[1] for part in self.summary if part[0] == "reasoning")

    @property
    def calls(self) -> list[tuple[str, str]]:
        """Names and arguments of the calls that can be run."""
        return [(part[1], part[2]) for part in self.summary if part[0] == "call"]

    @property
    def malformed(self) -> list[CallMalformed]:
        """Calls that cannot."""
        return [event for event in self.events if isinstance(event, CallMalformed)]


def tool(name: str, **properties: object) -> dict[str, Any]:
    """A tool's definition; `properties` are the schemas of its parameters."""
    return {
        "type": "function",
        "function": {"name": name, "parameters": {"type": "object", "properties": properties}},
    }


def reader_for(
    name: str,
    tokenizer: Any,
    tools: Sequence[dict[str, Any]],
    opener: str = "",
    stops: tuple[str, ...] = (),
    apart: tuple[str, ...] = (),
    vocabulary: Vocabulary | None = None,
    pieces: Vocabulary | None = None,
) -> TurnReader:
    """A reader; `vocabulary` tells spelled openers from tokens, `pieces` plain ones in code."""
    row = row_of(name)
    schemas = {each["function"]["name"]: each["function"]["parameters"] for each in tools}
    formats = resolve([row], schemas)
    thinking = Thinking(formats, opener, apart)
    spelled = SpelledOpeners(formats, vocabulary)
    form = turn_format([row])
    if form is not None:
        parser = turn_parser(form, tokenizer, tools, pieces)
        return TurnReader(parser, None, stops, thinking, spelled, formats)
    made = {INLINE: InlineParser, REACT.name: ReactParser}[row]
    return TurnReader(None, made(schemas, new_call_id), stops, thinking, spelled)


def decode(
    model: StandIn,
    tokens: Sequence[int],
    tools: Sequence[dict[str, Any]],
    step: int = 1,
    end: str = "",
    cut: bool = False,
    thinking: str = "",
    stops: tuple[str, ...] = (),
    pausing: bool = True,
    apart: tuple[str, ...] = (),
    spelled: bool = False,
) -> Outcome:
    """Do with a turn's tokens what the engine and a session do; `step` tokens come at a time.

    The turn ends as models end it, with a token of its own: `end`, or the one that closes calls if
    the family has one. With `cut` the token limit ends it, without a token of its own. `thinking`
    is the opener with which the prompt ended, and `apart` are those whose text is reasoning. Unless
    `pausing`, the engine looks for `stops` alone. With `spelled`, a grammar constrains the turn.
    """
    names = tuple(each["function"]["name"] for each in tools)
    formats = (row_of(model.name),) if pausing else ()
    plan = WatchPlan.from_wire(
        WatchPlan(formats, names, stops, thinking=thinking, spelled=spelled).to_wire()
    )
    watch = Watch(plan, model.vocabulary, model.ends)
    if not cut:
        tokens = [*tokens, model.tokenizer.convert_tokens_to_ids(end) if end else max(model.ends)]
    found = watch.first_stop(tokens)
    read, verdict = (found[0] + 1, found[1]) if found else (len(tokens), None)
    in_sentence = verdict is Verdict.CALL and tokens[read - 1] not in model.ends
    at_stop = verdict is Verdict.STOP
    vocabulary = None if spelled else model.vocabulary
    about = (thinking, stops, apart, vocabulary, model.vocabulary)
    reader = reader_for(model.name, model.tokenizer, tools, *about)
    utf8 = codecs.getincrementaldecoder("utf-8")("replace")
    events: list[Event] = []
    for start in range(0, read, step):
        ids = tokens[start : min(start + step, read)]
        data = b"".join(model.vocabulary.bytes_of(id_) for id_ in ids if id_ not in model.ends)
        last = start + step >= read
        text = utf8.decode(data)
        events += reader.push(text, ids, cut and last, ended=last, at_stop=at_stop and last)
    if not in_sentence or cut or reader.invents_result:
        events += reader.end()
    check_order(events)
    outcome = Outcome(read, verdict, tuple(events), reader.message(), watch.overshoot)
    check_calls(watch, outcome)
    return outcome


def check_calls(watch: Watch, outcome: Outcome) -> None:
    """The engine has read the calls that the session runs, and so expects their pauses.

    It names the calls of a format that closes them, whose names are words of `NAMED_CHARACTERS`.
    """
    forms = watch.formats
    if outcome.verdict is not Verdict.CALL or any(
        one.opens_anywhere or one.closes is None for one in forms
    ):
        return
    read = {name for call in watch.calls for name in call.tools}
    names = {
        name for name, _ in outcome.calls if re.fullmatch(rf"[\w.-]{{1,{NAMED_CHARACTERS}}}", name)
    }
    assert names <= read, (outcome.calls, watch.calls)


def check_order(events: Sequence[Event]) -> None:
    """Started, then arguments, then finished; the pieces add up to the whole."""
    pieces: dict[str, str] = {}
    over: set[str] = set()
    for event in events:
        if isinstance(event, CallStarted):
            assert event.call_id not in pieces
            pieces[event.call_id] = ""
        elif isinstance(event, ArgumentsDelta):
            assert event.text
            pieces[event.call_id] += event.text
        elif isinstance(event, CallFinished | CallMalformed):
            assert event.call_id not in over
            over.add(event.call_id)
            if isinstance(event, CallFinished):
                assert pieces[event.call_id] == event.arguments
            pieces.pop(event.call_id, None)
    assert not pieces, "a call was announced and never ended"
