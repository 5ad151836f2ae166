"""Seeing a call: the same verdict at the same byte, however the text is cut into tokens."""

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caesura.intercept.calls.vocabulary import Vocabulary
from caesura.intercept.calls.watch import Verdict, Watch, WatchPlan

END = 0


def watch_pieces(plan: WatchPlan, pieces: Sequence[bytes], end: bool = True) -> tuple[int, object]:
    """Feed pieces as tokens of their own; return the bytes read when it stopped, and why."""
    vocabulary = Vocabulary([b"<end>", *pieces])
    watch = Watch(plan, vocabulary, frozenset({END}))
    tokens = [*range(1, len(pieces) + 1), *([END] if end else [])]
    found = watch.first_stop(tokens)
    if found is None:
        return sum(map(len, pieces)), None
    index, verdict = found
    read = sum(len(piece) for piece in pieces[: index + 1])
    if verdict is not Verdict.END and index < len(pieces):
        read -= len(watch.overshoot)
    return read, verdict


def cut(text: bytes, cuts: Sequence[int]) -> list[bytes]:
    edges = sorted({0, len(text), *(c % (len(text) + 1) for c in cuts)})
    return [text[a:b] for a, b in itertools.pairwise(edges)]


INLINE = WatchPlan(("inline",), ("calculator", "clock"))
HERMES = WatchPlan(("hermes",), ("calculator",))
LLAMA = WatchPlan(("llama3_json",), ("calculator",))
MISTRAL = WatchPlan(("mistral",), ("calculator",))
CODER = WatchPlan(("qwen3_coder",), ("calculator",), ("STOP",))
REACT = WatchPlan(("react",), ("calculator",))
MISTRAL_STOP = WatchPlan(("mistral",), ("calculator",), ("STOP",))
HERMES_STOP = WatchPlan(("hermes",), ("calculator",), ("STOP",))
HARMONY = WatchPlan(("harmony",), ("calculator",))
BOTH = WatchPlan(("hermes", "inline"), ("calculator",), ("STOP",))

CASES = [
    (
        INLINE,
        "12 boxes hold [calculator(12*7) -> 84]",
        "12 boxes hold [calculator(12*7) ->",
        "call",
    ),
    (INLINE, "see [the book](http://x) -> here", None, "end"),
    (INLINE, "[calculator(1) and [clock() ->", "[calculator(1) and [clock() ->", "call"),
    (INLINE, "[calendar(1) -> 2]", None, "end"),
    (INLINE, "[[calculator((1+2)*3) ->9]", "[[calculator((1+2)*3) ->", "call"),
    (HERMES, 'Let me see.\n<tool_call>\n{"name": "calculator"}\n</tool_call>', None, "call"),
    (HERMES, "<tool_call> {never closed", None, "call"),
    (HERMES, "<tool_call> opens a call", None, "end"),
    (HERMES, "no <tool call> here", None, "end"),
    (LLAMA, ' {"name": "calculator", "parameters": {}}', None, "call"),
    (LLAMA, "<|python_tag|>x", None, "call"),
    (LLAMA, 'Sure: {"name": 1}', None, "end"),
    (MISTRAL, '[TOOL_CALLS][{"name": "calculator"}]', None, "call"),
    (
        MISTRAL_STOP,
        '[TOOL_CALLS][{"name": "STOP"}] STOP x',
        '[TOOL_CALLS][{"name": "STOP"}] STOP',
        "stop",
    ),
    (MISTRAL_STOP, '[TOOL_CALLS]f[ARGS]{"a": "}STOP"}', None, "call"),
    (HERMES_STOP, '<tool_call>{"a": "</tool_call>STOP"}</tool_call>', None, "call"),
    (HERMES_STOP, "<tool_call>{</tool_call>STOP", "<tool_call>{</tool_call>STOP", "stop"),
    (
        CODER,
        "<tool_call><function=a><parameter=b></tool_call>STOP</parameter></function></tool_call>STOP",
        None,
        "stop",
    ),
    (REACT, "Action: f\nAction Input: 1\nObservation: 2", "Action: f\nAction Input: 1\n", "call"),
    (
        REACT,
        'Action: f\nAction Input: {\n"a":\n"\\n"}\n\n',
        'Action: f\nAction Input: {\n"a":\n"\\n"}\n',
        "call",
    ),
    (
        REACT,
        'x\nAction Input: {"a": 1\nObservation: 2',
        'x\nAction Input: {"a": 1\nObservation:',
        "call",
    ),
    (REACT, 'x\nAction Input: {"a\n', None, "call"),
    (REACT, "Action: f\nAction Input: 1", None, "call"),
    (REACT, "Action Input: 1\n", None, "call"),
    (REACT, "Action: None\nAction Input: None\nSo: 1", None, "end"),
    (REACT, "Action: f\nAction Input:\n{}\nx", "Action: f\nAction Input:\n{}\n", "call"),
    (
        HARMONY,
        "<|channel|>analysis<|message|>x<|end|><|start|>assistant to=f<|message|>",
        None,
        "call",
    ),
    (HARMONY, " to=functions.f<|channel|>commentary<|message|>{}", None, "call"),
    (HARMONY, "<|channel|>final<|message|>send it to=me", None, "end"),
    (BOTH, "text STOP more", "text STOP", "stop"),
    (
        WatchPlan(("hermes",), stop=("<tool_call>",)),
        "text <tool_call>{",
        "text <tool_call>",
        "stop",
    ),
    (BOTH, "<tool_call>STOP [calculator(1) ->", None, "call"),
    (BOTH, "[calculator(STOP) -> 1", "[calculator(STOP) ->", "call"),
]


@pytest.mark.parametrize(("plan", "text", "read", "verdict"), CASES)
def test_every_cut_into_two_and_single_bytes(
    plan: WatchPlan, text: str, read: str | None, verdict: str
) -> None:
    data = text.encode()
    expected = len((read or text).encode())
    ways = [cut(data, [at]) for at in range(len(data) + 1)] + [cut(data, range(len(data)))]
    for pieces in ways:
        assert watch_pieces(plan, pieces) == (expected, Verdict(verdict)), pieces


FRAGMENTS = st.lists(
    st.sampled_from(
        [
            "[calculator(",
            ") ->",
            "12*7",
            " ",
            "<tool_call>",
            "</tool_call>",
            "STOP",
            "ST",
            "[",
            "<",
            "[calc",
            ")",
            "->",
            "é",
            "{",
            "text",
            "\n",
            "[[calculator(",
            "<tool_",
            "call>",
        ]
    ),
    max_size=12,
)


@given(FRAGMENTS, st.lists(st.integers(0, 200), max_size=20))
def test_any_cut_gives_the_same_verdict(fragments: list[str], cuts: list[int]) -> None:
    data = "".join(fragments).encode()
    for plan in (INLINE, HERMES, LLAMA, BOTH):
        whole = watch_pieces(plan, cut(data, range(len(data))))
        assert watch_pieces(plan, cut(data, cuts)) == whole


def test_a_call_that_ends_in_one_token_with_the_turn_wins() -> None:
    assert watch_pieces(INLINE, [b"[clock() ->"]) == (11, Verdict.CALL)


def test_a_call_that_is_the_last_token_of_its_turn_names_its_tool() -> None:
    vocabulary = Vocabulary([b"word", b"<end>", b'<tool_call>{"name": "search"}'])
    for turn in ("fresh", "holding"):
        plan = WatchPlan(("hermes",), ("search",), (), turn)
        watch = Watch(plan, vocabulary, frozenset({1, 2}))
        assert [watch.feed(token) for token in (0, 2)] == [None, Verdict.CALL]
        assert watch.awaited() == ("search", None)
    watch = Watch(plan, vocabulary, frozenset({1, 2}))
    assert watch.feed(1) is Verdict.CALL and watch.calls == []


def test_what_stood_before_in_the_turn_counts() -> None:
    begun = WatchPlan(("hermes", "llama3_json"), ("calculator",), turn="begun")
    assert watch_pieces(begun, [b"{", b"}"]) == (2, Verdict.END)
    holding = WatchPlan(("hermes",), ("calculator",), turn="holding")
    assert watch_pieces(holding, [b"done"]) == (4, Verdict.CALL)


def test_requests_of_one_plan_share_its_markers_and_no_text() -> None:
    texts = (
        b'<think>a</think>Oak. <tool_call>{"name": "calculator"}</tool_call> and',
        b"`<tool_call>` is how `calls` begin, and </tool_call> is how they end",
    )
    tokens = [list(text) for text in texts]
    vocabulary = Vocabulary([bytes([value]) for value in range(256)])
    first, second = (Watch(HERMES, vocabulary, frozenset()) for _ in texts)
    for one, another in itertools.zip_longest(*tokens):
        for watch, token in ((first, one), (second, another)):
            if token is not None:
                watch.feed(token)
    alone = [Watch(HERMES, vocabulary, frozenset()) for _ in texts]
    for watch, own in zip(alone, tokens, strict=True):
        watch.replay(own)
    for watch, told in zip((first, second), alone, strict=True):
        assert [call.text for call in watch.calls] == [call.text for call in told.calls]
        assert watch.holds_call is told.holds_call
    assert (first.holds_call, second.holds_call) == (True, False)


def test_what_one_request_learns_of_a_token_binds_no_other() -> None:
    vocabulary = Vocabulary([b"<end>", b"Oak", b" trees"])
    tokens = [1, 2, 1, 2]
    assert Watch(HERMES, vocabulary, frozenset({END})).first_stop(tokens) is None
    assert Watch(HERMES, vocabulary, frozenset({END})).first_stop(tokens) is None
    assert Watch(HERMES, vocabulary, frozenset({END, 2})).first_stop(tokens) == (1, Verdict.END)
    stopped = WatchPlan(("hermes",), stop=("trees",))
    assert Watch(stopped, vocabulary, frozenset({END})).first_stop(tokens) == (1, Verdict.STOP)
    assert Watch(HERMES, vocabulary, frozenset({END})).first_stop([*tokens, END]) == (
        4,
        Verdict.END,
    )


def test_goes_on_until_something_happens() -> None:
    assert watch_pieces(BOTH, [b"nothing", b" yet"], end=False) == (11, None)


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"formats": "hermes"}, "watch.formats"),
        ({"formats": [1]}, "watch.formats"),
        ({"formats": [], "stop": [""]}, "watch.stop"),
        ({"formats": [], "turn": "soon"}, "watch.turn"),
        ({"formats": [], "thinking": "<ponder>"}, "watch.thinking"),
        ({"formats": [], "thinking": 1}, "watch.thinking"),
        ({"formats": ["yaml"]}, "unknown call format 'yaml'"),
    ],
)
def test_bad_plans_say_what_is_wrong(data: dict[str, object], field: str) -> None:
    with pytest.raises(ValueError, match=field):
        WatchPlan.from_wire(data)


def test_plans_survive_the_wire() -> None:
    for plan in (
        INLINE,
        BOTH,
        WatchPlan(("hermes",), turn="holding"),
        WatchPlan(("hermes",), thinking="<think>"),
    ):
        assert WatchPlan.from_wire(plan.to_wire()) == plan


def test_half_a_character_is_no_text_of_a_plan() -> None:
    with pytest.raises(ValueError, match=r"watch\.stop must be a list of non-empty texts"):
        WatchPlan.from_wire({"formats": [], "stop": ["\ud800"]})
