"""Nothing that stands within thinking is a call; what stands behind it is."""

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caesura.intercept.calls.formats import resolve
from caesura.intercept.calls.thinking import REGIONS
from caesura.intercept.calls.vocabulary import Vocabulary
from caesura.intercept.calls.watch import Verdict, Watch, WatchPlan
from caesura.intercept.pause_hints import PauseHint
from caesura.scheduler.vllm.engine.calls import find_call
from tests.formats.cases import NOW, SEARCH, TOOLS, check_prose
from tests.formats.rendering import RENDER
from tests.formats.world import MARKERS, Outcome, StandIn, decode, row_of, stand_in

NAMES = [name for name in RENDER if name != "harmony"]
IN_SENTENCE = ("react", "inline")
WAYS = {
    "opened by the model": ("<think>\n", ""),
    "opened by the prompt": ("", "<think>"),
    "opened by the model, Mistral's": ("[THINK]", ""),
}


def mentioned(name: str) -> str:
    """A thought that holds a call of another tool than the real one."""
    return f"I could write {RENDER[name]([NOW])} or\n{RENDER[name]([NOW])}\n, but no."


def closer(opener: str, thinking: str) -> str:
    return REGIONS[opener.strip() or thinking]


def read(model: StandIn, text: str, step: int, thinking: str) -> Outcome:
    return decode(model.plain, model.spelled(text), TOOLS, step, thinking=thinking)


def called(outcome: Outcome) -> list[tuple[str, object]]:
    return [(name, json.loads(arguments)) for name, arguments in outcome.calls]


@pytest.mark.parametrize(("opener", "thinking"), WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("name", NAMES)
def test_only_the_call_behind_thinking_is_run(name: str, opener: str, thinking: str) -> None:
    model = stand_in(name)
    thought = opener + mentioned(name) + closer(opener, thinking)
    text = thought + RENDER[name]([SEARCH])
    tokens = model.spelled(text)
    # Two pieces cut at every byte, the markers of thinking included, and small pieces.
    first = range(len(thought) - 12, len(thought) + 12)
    for step in (*range(1, 14), *first, len(tokens) + 1):
        outcome = decode(model.plain, tokens, TOOLS, step, thinking=thinking)
        assert called(outcome) == [tuple(SEARCH)]
        assert not outcome.malformed
        assert outcome.shown.rstrip("\n") == thought
        assert outcome.verdict is Verdict.CALL
        assert outcome.read == len(tokens) + (0 if name in IN_SENTENCE else 1)


@pytest.mark.parametrize(("opener", "thinking"), WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("name", NAMES)
def test_thinking_that_is_never_closed_holds_no_call(name: str, opener: str, thinking: str) -> None:
    model, text = stand_in(name), opener + mentioned(name)
    for step in (1, 3, 8, len(text)):
        outcome = read(model, text, step, thinking)
        check_prose(outcome, text)


@pytest.mark.parametrize("name", NAMES)
def test_the_engine_stops_at_the_same_byte_however_thinking_is_cut(name: str) -> None:
    text = f"<think>{mentioned(name)}</think>{RENDER[name]([SEARCH])}"
    data = text.encode()
    plan = WatchPlan((row_of(name),), ("search", "now"))
    for at in range(1, len(data)):
        pieces = Vocabulary([b"", data[:at], data[at:], b" and more"])
        watch = Watch(plan, pieces, frozenset({0}))
        assert watch.first_stop([1, 2, 3, 0]) == (1 if name in IN_SENTENCE else 3, Verdict.CALL)


@pytest.mark.parametrize(
    "name", [name for name in NAMES if name not in ("llama3_json", "pythonic")]
)
def test_a_mention_in_mid_sentence_is_no_thinking(name: str) -> None:
    model, before = stand_in(name), "Write <think> or `[THINK]`, and then: "
    text = before + RENDER[name]([SEARCH])
    for step in (1, 5, len(text)):
        outcome = read(model, text, step, "")
        assert called(outcome) == [tuple(SEARCH)]
        assert outcome.shown.rstrip("\n") == before.rstrip("\n")


MARKED = [name for name in NAMES if MARKERS[name] and name not in ("llama3_json", "pythonic")]


@pytest.mark.parametrize("name", MARKED)
def test_thinking_may_begin_behind_a_call(name: str) -> None:
    model = stand_in(name)
    text = f"{RENDER[name]([SEARCH])} <think>{mentioned(name)}"
    for step in (1, 5, len(text)):
        outcome = read(model, text, step, "")
        assert called(outcome) == [tuple(SEARCH)]
        assert outcome.shown.strip() == f"<think>{mentioned(name)}"
        assert outcome.verdict is Verdict.CALL


def test_thinking_behind_a_call_that_was_never_closed_right() -> None:
    model = stand_in("hermes")
    broken = '<tool_call>{"name": "search", "arguments": {"query": "oak}}</tool_call>'
    text = f"{broken}\n<think>{mentioned('hermes')}</think>{RENDER['hermes']([SEARCH])}"
    for step in (1, 5, len(text)):
        outcome = read(model, text, step, "")
        assert called(outcome) == [tuple(SEARCH)]
        assert len(outcome.malformed) == 1


@pytest.mark.parametrize("name", ["qwen3_coder", "glm"])
def test_a_value_may_hold_the_markers_of_thinking(name: str) -> None:
    model = stand_in(name)
    call = SEARCH._replace(arguments={"query": "what do\n<think>\nand\n</think>\nmean?"})
    text = RENDER[name]([call, NOW])
    for step in (1, 5, len(text)):
        assert called(read(model, text, step, "")) == [tuple(call), tuple(NOW)]


@pytest.mark.parametrize("stop", ["</think>", "<think>", "think>", "could"])
def test_stop_texts_stop_within_thinking_too(stop: str) -> None:
    text = "<think>I could.</think>"
    pieces = Vocabulary([b"", *(bytes([byte]) for byte in text.encode())])
    watch = Watch(WatchPlan(("hermes",), ("search",), (stop,)), pieces, frozenset({0}))
    end = text.index(stop) + len(stop)
    assert watch.first_stop(range(1, len(text) + 1)) == (end - 1, Verdict.STOP)


PIECES = [
    *("<think>", "</think>", "\n", " ", "text", "<", "[", "[THINK]", "[/THINK]", "`"),
    *('"', "{", "}", "é", "<think"),
]


@pytest.mark.parametrize("name", MARKED)
def test_the_engine_pauses_if_and_only_if_there_is_a_call(name: str) -> None:
    model, call = stand_in(name), RENDER[name]([SEARCH])
    half = call[: len(call) // 2]
    fragments = st.lists(st.sampled_from([*PIECES, call, call, half]), max_size=10)

    @settings(max_examples=80, deadline=None)
    @given(fragments, st.integers(1, 9), st.sampled_from(["", "<think>", "[THINK]"]))
    def check(parts: list[str], step: int, thinking: str) -> None:
        outcome = read(model, "".join(parts), step, thinking)
        whole = read(model, "".join(parts), 10_000, thinking)
        assert outcome.summary == whole.summary
        assert (outcome.verdict is Verdict.CALL) == bool(outcome.calls or outcome.malformed)

    check()


def test_tokens_that_hold_a_marker_of_thinking_and_more() -> None:
    data = b"<think>\n[search(1) ->\n</think>\n12 [search(query='x') -> so"
    end = data.rindex(b" so")
    plan = WatchPlan(("inline",), ("search",))
    for cuts in itertools.combinations(range(1, len(data), 3), 2):
        edges = [0, *cuts, len(data)]
        parts = [data[a:b] for a, b in itertools.pairwise(edges)]
        watch = Watch(plan, Vocabulary([b"", *parts]), frozenset({0}))
        found = watch.first_stop([1, 2, 3, 0])
        index = next(i for i, edge in enumerate(edges[1:]) if edge >= end)
        assert found == (index, Verdict.CALL)
        assert watch.overshoot == data[end : edges[index + 1]]


@pytest.mark.parametrize(("opener", "thinking"), WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("name", NAMES)
def test_the_scheduler_expects_no_pause_of_a_tool_within_thinking(
    name: str, opener: str, thinking: str
) -> None:
    model = stand_in(name)
    formats = resolve([row_of(name)], [tool["function"]["name"] for tool in TOOLS])
    thought = opener + mentioned(name) + closer(opener, thinking)
    assert find_call(model.spelled(f"{thought}\nNo."), model.vocabulary, formats) is None
    tokens = model.spelled(thought + RENDER[name]([SEARCH]))
    call = find_call(tokens, model.vocabulary, formats)
    assert call is not None and call.tool == "search"
    asks = {"now": PauseHint(60.0, person=True)}
    tools = tuple(tool["function"]["name"] for tool in TOOLS)
    plan = WatchPlan((row_of(name),), tools, pauses=asks, thinking=thinking)
    watch = Watch(plan, model.plain.vocabulary, model.ends)
    watch.first_stop([*tokens, max(model.ends)])
    assert watch.awaited() == ("search", None)
