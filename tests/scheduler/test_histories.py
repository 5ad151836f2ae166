"""What counts in a history: a client may spell it otherwise, but must not say anything else."""

import copy
import json
import random
import re
import string
import unicodedata
from collections.abc import Callable, Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from caesura.scheduler.answers import Answers, Missed
from caesura.scheduler.histories import Histories, Reads, kind_of
from caesura.scheduler.messages import SessionSpec

THINKING = (("<think>", "</think>"),)
READS = Reads("{{ message.content }} {{ message.mood }}", thinking=THINKING)
SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "all": {"type": "boolean", "default": False},
        "limit": {"type": "integer", "default": 5000},
        "note": {"default": None},
        "where": {"$ref": "#/$defs/Where"},
        "edits": {"type": "array", "items": {"$ref": "#/$defs/Where"}},
    },
    "$defs": {"Where": {"properties": {"line": {"default": 1}, "side": {"default": "left"}}}},
}
TOOL = {"type": "function", "function": {"name": "edit", "parameters": SCHEMA}}
SPEC = SessionSpec([TOOL], owner="a")
TOKENS = [2, 7, 1, 8]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
numbers = st.one_of(
    st.integers(-(10**6), 10**6),
    st.integers(2**53, 2**80),
    st.floats(allow_nan=False, allow_infinity=False),
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, texts),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
arguments = st.dictionaries(st.sampled_from(["path", "old", "new", "µ", "a b"]) | texts, values)


def history(text: str, ids: tuple[str, ...] = ("call_1", "call_2")) -> list[dict[str, Any]]:
    """Return a conversation of two calls, of which the first one has these arguments."""
    first = {"id": ids[0], "type": "function", "function": {"name": "edit", "arguments": text}}
    second = {"id": ids[1], "type": "function", "function": {"name": "edit", "arguments": "{}"}}
    return [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Edit it."},
        {"role": "assistant", "content": "", "reasoning": "Which file?", "tool_calls": [first]},
        {"role": "tool", "tool_call_id": ids[0], "name": "edit", "content": "Done."},
        {"role": "assistant", "content": "Again.", "tool_calls": [second]},
        {"role": "tool", "tool_call_id": ids[1], "name": "edit", "content": "Done again."},
        {"role": "assistant", "content": "It is edited.", "reasoning": "All is done."},
    ]


def missed(
    told: list[dict[str, Any]], sent: list[dict[str, Any]], reads: Reads = READS
) -> str | None:
    """Return the field for which `sent` misses the answer of `told`, or None if it is found."""
    answers, histories = Answers(), Histories(reads)
    answers.remember(histories.of(told, SPEC), TOKENS)
    found = answers.find(histories.of(sent, SPEC))
    again = answers.find(Histories(reads).of(sent, SPEC))
    assert found == again  # what was read before gives the same
    return found.field or found.why if isinstance(found, Missed) else None


def of_arguments(told: str, sent: str) -> str | None:
    return missed(history(told), history(sent))


# -- spellings of a value of JSON -----------------------------------------------------------------


def spelled(value: Any, rng: random.Random) -> str:
    """Return a value of JSON in some spelling that all exact readers understand alike."""

    def space() -> str:
        return rng.choice(["", "", " ", "\n", "\t "])

    if isinstance(value, dict):
        items = list(value.items())
        rng.shuffle(items)
        inside = [
            f"{_text(name, rng)}{space()}:{space()}{spelled(each, rng)}" for name, each in items
        ]
        return f"{{{space()}{f',{space()}'.join(inside)}{space()}}}"
    if isinstance(value, list):
        return f"[{space()}{f'{space()},'.join(spelled(each, rng) for each in value)}{space()}]"
    if isinstance(value, str):
        return _text(value, rng)
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    return _number(value, rng)


def _text(text: str, rng: random.Random) -> str:
    pieces = []
    for character in text:
        plain = json.dumps(character, ensure_ascii=False)[1:-1]
        escaped = "".join(f"\\u{unit:04{rng.choice('xX')}}" for unit in _units(character))
        pieces.append(rng.choice([plain, escaped]))
    return f'"{"".join(pieces)}"'


def _units(character: str) -> list[int]:
    data = character.encode("utf-16-be")
    return [int.from_bytes(data[at : at + 2]) for at in range(0, len(data), 2)]


def _number(value: int | float, rng: random.Random) -> str:
    plain = repr(value)
    if isinstance(value, int):
        zeros = len(plain) - len(plain.rstrip("0")) if value else 0
        forms = [plain, f"{plain}.0", f"{plain}.000", f"{plain}e0", f"{plain}E+00"]
        forms += [f"{plain[:-zeros]}e{zeros}"] if zeros else [f"{plain}0e-1"]
        return rng.choice(forms)
    mantissa, _, power = plain.partition("e")
    mantissa += "" if "." in mantissa else ".0"
    moved = f"{mantissa}0e{int(power or 0)}"
    return rng.choice(
        [plain, moved, moved.replace("e", "E"), moved.replace("e", "e+").replace("+-", "-")]
    )


@given(arguments, st.randoms(use_true_random=False))
def test_arguments_are_found_in_any_spelling(value: dict[str, Any], rng: random.Random) -> None:
    assert of_arguments(spelled(value, rng), spelled(value, rng)) is None
    compact = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    assert of_arguments(json.dumps(value), compact) is None
    assert of_arguments(spelled(value, rng), json.dumps(value, sort_keys=True)) is None


def exact(text: str) -> Any:
    """Return a value of JSON that equals only what is the same, told apart by another library."""

    def number(text: str) -> Any:
        return ("number", Decimal(text))

    def made(value: Any) -> Any:
        if isinstance(value, dict):
            return ("object", frozenset((name, made(each)) for name, each in value.items()))
        if isinstance(value, list):
            return ("list", tuple(map(made, value)))
        return value if isinstance(value, tuple) else (type(value).__name__, value)

    return made(json.loads(text, parse_int=number, parse_float=number))


@given(arguments, arguments, st.randoms(use_true_random=False))
def test_arguments_are_found_only_if_they_are_the_same_value(
    one: dict[str, Any], other: dict[str, Any], rng: random.Random
) -> None:
    told, sent = spelled(one, rng), spelled(other, rng)
    assert (of_arguments(told, sent) is None) == (exact(told) == exact(sent))


@given(arguments, st.data(), st.randoms(use_true_random=False))
def test_a_changed_value_is_never_found(
    value: dict[str, Any], data: st.DataObject, rng: random.Random
) -> None:
    """One place of the value is another one in the history that comes back."""
    assume(value)
    places = list(_places(value))
    path = data.draw(st.sampled_from(places))
    changed = copy.deepcopy(value)
    inner = changed
    for step in path[:-1]:
        inner = inner[step]
    other = data.draw(values)
    assume(exact(json.dumps(other)) != exact(json.dumps(inner[path[-1]])))
    inner[path[-1]] = other
    assert of_arguments(spelled(value, rng), spelled(changed, rng)) == "messages[2].arguments"


def _places(value: Any, path: tuple[Any, ...] = ()) -> Any:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for name, each in items:
        yield (*path, name)
        if isinstance(each, dict | list):
            yield from _places(each, (*path, name))


@pytest.mark.parametrize(
    ("told", "sent"),
    [
        ('{"n": 5}', '{"n": 6}'),
        ('{"n": 5}', '{"n": "5"}'),
        ('{"n": 1}', '{"n": true}'),
        ('{"n": 0}', '{"n": false}'),
        ('{"n": 0}', '{"n": null}'),
        ('{"n": null}', "{}"),
        ('{"n": [1, 2]}', '{"n": [2, 1]}'),
        ('{"n": []}', '{"n": {}}'),
        ('{"n": [1]}', '{"n": 1}'),
        ('{"n": {"a": 1}}', '{"n": "{\\"a\\": 1}"}'),
        ('{"n": "{\\"a\\": 1}"}', '{"n": "{\\"a\\":1}"}'),
        ('{"n": 9007199254740993}', '{"n": 9007199254740992}'),
        ('{"n": 12345678901234567890}', '{"n": 12345678901234567000}'),
        ('{"n": 9007199254740993.0}', '{"n": 9007199254740992.0}'),
        ('{"n": 0.1000000000000000055511151231257827}', '{"n": 0.1}'),
        ('{"n": 1e400}', '{"n": null}'),
        ('{"n": 1e400}', '{"n": 1e401}'),
        ('{"n": NaN}', '{"n": null}'),
        ('{"n": NaN}', '{"n":NaN}'),
        ('{"n": Infinity}', '{"n": 1e999}'),
        ('{"n": 1, "n": 2}', '{"n": 2}'),
        ('{"n": 1, "n": 2}', '{"n": 2, "n": 1}'),
        ('{"n": 1, "n": 1}', '{"n": 1}'),
        ('{"n": {"a": 1, "a": 2}}', '{"n": {"a": 2}}'),
        ('{"n": 1', '{"n": 1}'),
        ('{"n": 1,}', '{"n": 1}'),
        ("{'n': 1}", '{"n": 1}'),
        ('{"n": 01}', '{"n": 1}'),
        ('{"n": "\\ud83d"}', '{"n": "\\ud83e"}'),
        ('{"n": " a"}', '{"n": "a"}'),
        ('{"n": "A"}', '{"n": "a"}'),
        ('{"n": 1}', '{"N": 1}'),
        ("null", "{}"),
        ("[]", "{}"),
        ('"{}"', "{}"),
    ],
)
def test_what_means_something_else_is_not_found(told: str, sent: str) -> None:
    assert of_arguments(told, sent) == "messages[2].arguments"
    assert of_arguments(sent, told) == "messages[2].arguments"
    assert of_arguments(told, told) is of_arguments(sent, sent) is None


@pytest.mark.parametrize("text", ["é", "Å", "ﬁ", "한"])
def test_normal_forms_of_letters_differ(text: str) -> None:
    forms = {unicodedata.normalize(form, text) for form in ("NFC", "NFD", "NFKC")}
    assert len(forms) > 1
    told = [json.dumps({"n": each}) for each in forms]
    assert of_arguments(told[0], told[1]) == "messages[2].arguments"


def test_what_is_too_large_or_too_deep_is_compared_as_text() -> None:
    for text in ("[" * 100_000, '{"n": 1e' + "9" * 5_000 + "}", '{"n": ' + "9" * 5_000 + "}"):
        assert of_arguments(text, text) is None
        assert of_arguments(text, text.replace("9", "8", 1) + " ") == "messages[2].arguments"


# -- defaults -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "sent"),
    [
        ({"path": "a"}, {"path": "a", "all": False}),
        ({"path": "a"}, {"path": "a", "limit": 5000.0, "note": None}),
        ({"where": {}}, {"where": {"line": 1, "side": "left"}}),
        ({"edits": [{"line": 2}]}, {"edits": [{"side": "left", "line": 2}]}),
    ],
)
def test_a_default_may_be_written_out_or_left_out(told: Any, sent: Any) -> None:
    assert of_arguments(json.dumps(told), json.dumps(sent)) is None
    assert of_arguments(json.dumps(sent), json.dumps(told)) is None


@pytest.mark.parametrize(
    ("told", "sent"),
    [
        ({"path": "a"}, {"path": "a", "all": True}),
        ({"path": "a"}, {"path": "a", "all": 0}),
        ({"path": "a"}, {"path": "a", "limit": "5000"}),
        ({"path": "a"}, {"path": "a", "mode": None}),
        ({"path": "a"}, {"path": ""}),
        ({}, {"where": {}}),
        ({"edits": [{}]}, {"edits": []}),
        ({"edits": [{"all": False}]}, {"edits": [{}]}),
    ],
)
def test_what_is_no_default_counts(told: Any, sent: Any) -> None:
    assert of_arguments(json.dumps(told), json.dumps(sent)) == "messages[2].arguments"
    assert of_arguments(json.dumps(sent), json.dumps(told)) == "messages[2].arguments"


def test_a_reference_to_itself_ends() -> None:
    schema = {"properties": {"n": {"$ref": "#/properties/n"}, "m": {"$ref": "#", "default": {}}}}
    tool = {"type": "function", "function": {"name": "edit", "parameters": schema}}
    spec = SessionSpec([tool])
    one, other = (
        Histories().of(history(text), spec) for text in ('{"n": 1, "m": {"m": {}}}', '{"n":1}')
    )
    assert one.key == other.key


# -- what else clients change ---------------------------------------------------------------------

Change = Callable[[list[dict[str, Any]]], Any]
HARMLESS: Mapping[str, Change] = {
    "thinking left out": lambda sent: [each.pop("reasoning", None) for each in sent],
    "the older name of thinking": lambda sent: [
        each.update(reasoning_content=each.pop("reasoning")) for each in sent if "reasoning" in each
    ],
    "thinking in the text": lambda sent: [
        each.update(content=f"<think>\n{each.pop('reasoning')}\n</think>\n\n{each['content']}")
        for each in sent
        if "reasoning" in each
    ],
    "thinking spaced otherwise": lambda sent: sent[2].update(reasoning="\nWhich\n\nfile? "),
    "the older name beside it": lambda sent: sent[2].update(reasoning_content="Which file?"),
    "ids": lambda sent: rename(sent, {"call_1": "a", "call_2": "b"}),
    "ids anew in each turn": lambda sent: rename(sent, {"call_1": "call_0", "call_2": "call_0"}),
    "null content": lambda sent: sent[2].update(content=None),
    "no content": lambda sent: sent[2].pop("content"),
    "no calls": lambda sent: sent[6].update(tool_calls=[]),
    "the server's own fields": lambda sent: [
        each.update(
            provider_specific_fields={"reasoning": None}, annotations=[], refusal=None, audio=None
        )
        for each in sent
        if each["role"] == "assistant"
    ],
    "fields of calls": lambda sent: sent[2]["tool_calls"][0].update(index=0, extra_content={}),
    "a line break before the text": lambda sent: sent[4].update(content="\n\nAgain."),
}
HARMFUL: Mapping[str, tuple[Change, str]] = {
    "other thinking": (lambda sent: sent[2].update(reasoning="Which files?"), "reasoning"),
    "other thinking in the text": (
        lambda sent: sent[6].update(content="<think>No.</think>It is edited.", reasoning=None),
        "reasoning",
    ),
    "an open thought": (lambda sent: sent[6].update(content="<think>It is edited."), "content"),
    "another system message": (lambda sent: sent[0].update(content="Be long."), "content"),
    "a changed digit": (lambda sent: sent[3].update(content="Done1"), "content"),
    "a space": (lambda sent: sent[6].update(content="It is edited. "), "content"),
    "a call removed": (lambda sent: sent[4].pop("tool_calls"), "tool_calls"),
    "a call twice": (
        lambda sent: sent[4].update(tool_calls=sent[4]["tool_calls"] * 2),
        "tool_calls",
    ),
    "another function": (
        lambda sent: sent[2]["tool_calls"][0]["function"].update(name="write"),
        "tool_calls",
    ),
    "another role": (lambda sent: sent[1].update(role="system"), "role"),
    "another name": (lambda sent: sent[1].update(name="Al"), "name"),
    "a field that the template reads": (lambda sent: sent[1].update(mood="good"), "fields"),
    "a result of another call": (
        lambda sent: sent[5].update(tool_call_id="call_1"),
        "tool_call_id",
    ),
    "a result of no call": (lambda sent: sent[5].update(tool_call_id="call_9"), "tool_call_id"),
    "two results swapped": (lambda sent: sent.insert(3, sent.pop(5)), "content"),
    "a message removed": (lambda sent: sent.pop(1), "role"),
    "a message more": (lambda sent: sent.insert(1, {"role": "user", "content": "?"}), "content"),
}


def rename(sent: list[dict[str, Any]], ids: Mapping[str, str]) -> None:
    for message in sent:
        for call in message.get("tool_calls", ()):
            call["id"] = ids[call["id"]]
        if "tool_call_id" in message:
            message["tool_call_id"] = ids[message["tool_call_id"]]


@given(
    arguments,
    st.sets(st.sampled_from(sorted(HARMLESS)), max_size=6),
    st.randoms(use_true_random=False),
)
def test_a_history_is_found_after_all_that_clients_do(
    value: dict[str, Any], changes: set[str], rng: random.Random
) -> None:
    sent = history(spelled(value, rng))
    chosen = [name for name in HARMLESS if name in changes]
    if "ids" in chosen and "ids anew in each turn" in chosen:
        chosen.remove("ids")
    for name in chosen:
        HARMLESS[name](sent)
    assert missed(history(spelled(value, rng)), sent) is None


@given(
    arguments,
    st.sampled_from(sorted(HARMFUL)),
    st.sets(st.sampled_from(sorted(set(HARMLESS) - {"ids", "ids anew in each turn"})), max_size=4),
    st.randoms(use_true_random=False),
)
def test_no_other_history_is_found(
    value: dict[str, Any], harm: str, changes: set[str], rng: random.Random
) -> None:
    sent = history(spelled(value, rng))
    for name in HARMLESS:
        if name in changes and not ("think" in harm and "think" in name):
            HARMLESS[name](sent)
    change, field = HARMFUL[harm]
    change(sent)
    found = missed(history(spelled(value, rng)), sent)
    assert found is not None and kind_of(found) in (field, "unknown")


@pytest.mark.parametrize("harm", HARMFUL)
def test_the_first_field_that_differs_is_named(harm: str) -> None:
    sent = history("{}")
    change, field = HARMFUL[harm]
    change(sent)
    found = missed(history("{}"), sent)
    assert found is not None and kind_of(found) == field
    place = re.fullmatch(r"messages(\[(\d)\])?\.\w+", found)
    assert place is not None, found


def test_ids_that_the_template_writes_count() -> None:
    sent = history("{}", ("a", "b"))
    assert missed(history("{}"), sent) is None
    assert missed(history("{}"), sent, Reads(ids=True)) == "messages.tool_call_id"


def test_a_template_that_writes_whole_messages_reads_all_fields() -> None:
    sent = history("{}")
    sent[1]["odd"] = 1
    assert missed(history("{}"), sent) is None
    assert missed(history("{}"), sent, Reads(fields=True)) == "messages[1].fields"


def test_other_variables_tools_and_salts_are_named() -> None:
    answers, histories = Answers(), Histories(READS)
    answers.remember(histories.of(history("{}"), SPEC), TOKENS)
    specs = {
        "tools": SessionSpec([], owner="a"),
        "chat_template_kwargs": SessionSpec([TOOL], owner="a", template={"thinks": True}),
        "cache_salt": SessionSpec([TOOL], owner="a", cache_salt="s"),
    }
    for field, spec in specs.items():
        found = answers.find(histories.of(history("{}"), spec))
        # Another context has answers of its own, so that the answer is found by its mark.
        assert isinstance(found, Missed) and (found.why, found.field) == ("changed", field)
    assert answers.find(histories.of(history("{}"), SessionSpec([TOOL], owner="b"))) == Missed(
        "unknown"
    )


# -- what is kept of earlier readings -------------------------------------------------------------


@given(st.lists(st.sampled_from("uatc"), min_size=1, max_size=30), st.integers(0, 40))
@example(list("uacatca"), 3)
def test_what_was_read_before_changes_nothing(roles: list[str], seed: int) -> None:
    """Turn by turn, with a memory of readings and without one."""
    rng = random.Random(seed)
    kept = Histories(READS)
    messages: list[dict[str, Any]] = []
    for number, role in enumerate(roles):
        call = {"id": f"c{rng.randrange(5)}", "function": {"name": "edit", "arguments": "{}"}}
        kinds: dict[str, dict[str, Any]] = {
            "u": {"role": "user", "content": rng.choice(string.ascii_letters)},
            "a": {"role": "assistant", "content": str(number), "reasoning": "?"},
            "c": {"role": "assistant", "tool_calls": [call]},
            "t": {"role": "tool", "content": ".", "tool_call_id": f"c{rng.randrange(5)}"},
        }
        messages.append(kinds[role])
        if rng.random() < 0.2:  # a branch of the conversation
            messages[rng.randrange(len(messages))]["content"] = "changed"
        assert kept.of(messages, SPEC) == Histories(READS).of(messages, SPEC)


def test_data_that_is_not_plain_is_read_too() -> None:
    sent = [MappingProxyType(each) for each in history("{}")]
    assert Histories(READS).of(sent, SPEC) == Histories(READS).of(history("{}"), SPEC)
