"""Formats that vLLM's tool parsers alone can read: the turn ends, and the parser decides."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser.engine.adapters import ParserEngineToolAdapter
from vllm.parser.engine.parser_engine import ParserEngine
from vllm.tool_parsers import ToolParserManager

from caesura.intercept.calls.events import CallFinished, Event
from caesura.intercept.calls.formats import BY_PARSER, by_parser, turn_format
from caesura.intercept.calls.watch import Verdict
from caesura.scheduler.errors import UsageError
from caesura.scheduler.messages import SessionSpec
from caesura.scheduler.vllm.client.model_formats import load_plugin, named_formats, with_parser
from caesura.scheduler.vllm.client.parsing.whole import EndedTurn, for_whole_turns
from caesura.scheduler.vllm.client.rendering.threads import MAX_INLINE_CHARACTERS
from caesura.scheduler.vllm.client.session import VllmSession
from tests.formats.speaking import Engine
from tests.formats.vllm_turns import CALL, TEXT_FIRST, TURNS, markers_of
from tests.formats.world import Outcome, StandIn, decode, tool, with_markers

WEATHER = tool("weather", city={"type": "string"}, days={"type": "integer"})
BEFORE = "Let me see. "


def model_of(parser: str) -> StandIn:
    return with_markers(f"{BY_PARSER}{parser}", markers_of(parser))


def called(outcome: Outcome) -> list[tuple[str, object]]:
    return [(name, json.loads(arguments)) for name, arguments in outcome.calls]


@pytest.mark.parametrize("parser", TURNS)
def test_the_call_is_read_and_the_request_pauses_at_the_end(parser: str) -> None:
    model = model_of(parser)
    before = BEFORE if parser in TEXT_FIRST else ""
    tokens = model.by_bytes(before + TURNS[parser])
    for step in (1, 7, len(tokens) + 1):
        outcome = decode(model, tokens, [WEATHER], step)
        assert called(outcome) == [CALL]
        assert outcome.shown.strip() == before.strip()
        assert outcome.verdict is Verdict.CALL
        assert outcome.read == len(tokens) + 1


@pytest.mark.parametrize("parser", TURNS)
@pytest.mark.parametrize("days", [{"$ref": "#/$defs/Count"}, {"allOf": [{"const": 3}]}])
def test_a_type_behind_a_reference_is_found(parser: str, days: dict[str, Any]) -> None:
    model = model_of(parser)
    asked = tool("weather", city={"type": "string"}, days=days)
    asked["function"]["parameters"]["$defs"] = {"Count": {"type": "integer"}}
    outcome = decode(model, model.by_bytes(TURNS[parser]), [asked], 10_000)
    assert called(outcome) == [CALL]


@pytest.mark.parametrize("parser", TURNS)
def test_a_turn_without_a_call_is_text(parser: str) -> None:
    model, text = model_of(parser), "No call: <tool, [weather] {1} to=x, é 😀."
    anywhere = by_parser(parser).opens_anywhere
    for step in (1, 7, 1_000):
        outcome = decode(model, model.by_bytes(text), [WEATHER], step)
        assert outcome.shown == text
        assert not outcome.calls
        # Without a known opener only the parser can tell.
        assert outcome.verdict is (Verdict.CALL if anywhere else Verdict.END)


@pytest.mark.parametrize("parser", TURNS)
def test_a_turn_that_the_token_limit_cuts_runs_nothing(parser: str) -> None:
    model = model_of(parser)
    tokens = model.by_bytes(TURNS[parser])
    for end in range(len(tokens) // 2, len(tokens) + 1, 5):
        outcome = decode(model, tokens[:end], [WEATHER], 7, cut=True)
        assert not outcome.calls
        assert outcome.verdict is None


@pytest.mark.parametrize("parser", ["minimax_m2", "ling3", "minimax_m3"])
def test_a_call_of_an_unknown_tool_is_a_call(parser: str) -> None:
    model = model_of(parser)
    outcome = decode(model, model.by_bytes(TURNS[parser]), [tool("search")])
    assert [name for name, _ in outcome.calls] == ["weather"]


def test_text_is_shown_up_to_what_may_open_a_call() -> None:
    model = model_of("minimax_m2")
    text = "1 <minimax is less <minimax:tool_call than 2"
    outcome = decode(model, model.spelled(text), [WEATHER])
    assert outcome.shown == text
    texts = [event.text for event in outcome.events if hasattr(event, "text")]
    assert len(texts) > 10


def test_an_opener_that_opens_nothing_is_text() -> None:
    model, text = model_of("minimax_m2"), "Calls begin with <minimax:tool_call>, I think."
    outcome = decode(model, model.spelled(text), [WEATHER])
    assert outcome.shown == text
    assert not outcome.calls


@pytest.mark.parametrize("parser", ["minimax_m2", "deepseek_v4", "kimi_k3"])
def test_a_call_within_thinking_is_not_run(parser: str) -> None:
    model = model_of(parser)
    thought = f"<think>I could write {TURNS[parser]}.</think>"
    outcome = decode(model, model.by_bytes(thought + "No."), [WEATHER])
    assert not outcome.calls
    outcome = decode(model, model.by_bytes(thought + TURNS[parser]), [WEATHER])
    assert called(outcome) == [CALL]


def of_the_engine() -> list[str]:
    """The parsers that vLLM builds on its parser engine."""
    made = {name: ToolParserManager.get_tool_parser(name) for name in TURNS}
    return [name for name, each in made.items() if issubclass(each, ParserEngineToolAdapter)]


def extracted(parser: type[Any], tokenizer: Any, text: str) -> Any:
    request = ChatCompletionRequest(
        messages=[{"role": "user", "content": ""}], tools=[WEATHER, tool("search")]
    )
    info = parser(tokenizer, request.tools).extract_tool_calls(text, request)
    functions = [call.function for call in info.tool_calls]
    return info.content, [(each.name, each.arguments) for each in functions]


@pytest.mark.parametrize("parser", of_the_engine())
def test_a_turn_read_without_pieces_has_the_same_calls(parser: str) -> None:
    made, tokenizer = ToolParserManager.get_tool_parser(parser), model_of(parser).tokenizer
    turn = TURNS[parser].replace("Paris", "<b>a > b</b>, {c: [1]}")
    texts = [BEFORE + turn + " So.", f"{turn}\n{turn}", *(turn[:end] for end in range(len(turn)))]
    for text in texts:
        whole = extracted(for_whole_turns(made), tokenizer, text)
        assert whole == extracted(made, tokenizer, text), text


# The engine of `ling3` is created past its bases. It is fast, since only whole values are pieces.
@pytest.mark.parametrize("parser", [name for name in of_the_engine() if name != "ling3"])
def test_a_turn_that_has_ended_is_not_read_again_for_each_piece(
    parser: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    prefix = ParserEngine._safe_arg_prefix
    monkeypatch.setattr(
        ParserEngine,
        "_safe_arg_prefix",
        staticmethod(lambda text, keys=None: read.append(text) or prefix(text, keys)),
    )
    model = model_of(parser)
    turn = TURNS[parser].replace("Paris", "<b>[Paris]</b>")
    outcome = decode(model, model.by_bytes(turn), [WEATHER], 1_000)
    assert called(outcome) == [("weather", {"city": "<b>[Paris]</b>", "days": 3})]
    assert not read


@pytest.mark.parametrize(("size", "beside"), [(10, False), (MAX_INLINE_CHARACTERS, True)])
async def test_a_large_turn_is_read_beside_the_event_loop(
    size: int, beside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    end = EndedTurn.end

    def noted(self: EndedTurn) -> Iterator[Event]:
        threads.append(threading.get_ident())
        yield from end(self)

    monkeypatch.setattr(EndedTurn, "end", noted)
    model = model_of("minimax_m2")
    turn = TURNS["minimax_m2"].replace("Paris", "P" * size)
    engine: Any = Engine("vllm:minimax_m2", model.by_bytes(turn), "stop", model=model)
    session = VllmSession(engine, SessionSpec((WEATHER,)))
    events = [event async for event in session.turn([{"role": "user", "content": "Where?"}])]
    (call,) = (event for event in events if isinstance(event, CallFinished))
    assert json.loads(call.arguments)["city"] == "P" * size
    assert [each != threading.get_ident() for each in threads] == [beside]
    await session.close(follow_up=True)


PLUGIN = """
import json

from vllm.entrypoints.generate.base.protocol import (
    ExtractedToolCallInformation, FunctionCall, ToolCall,
)
from vllm.tool_parsers import ToolParser, ToolParserManager


class ShoutedToolParser(ToolParser):
    def extract_tool_calls(self, model_output, request):
        text, found, name = model_output.partition("CALL ")
        call = FunctionCall(name=name.strip(), arguments="{}")
        calls = [ToolCall(function=call)] if found else []
        return ExtractedToolCallInformation(
            tools_called=bool(calls), tool_calls=calls, content=text
        )


ToolParserManager.register_module("shouted", module=ShoutedToolParser)
"""


def test_a_plugin_of_vllm_is_a_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ToolParserManager, "tool_parsers", dict(ToolParserManager.tool_parsers))
    file = tmp_path / "shouted_parser.py"
    file.write_text(PLUGIN)
    with pytest.raises(UsageError, match=r"unknown call format 'shouted'.*hermes.*minimax_m2"):
        named_formats(["shouted"])
    load_plugin(str(file))
    assert named_formats(["shouted", "react"]) == ("vllm:shouted", "react")
    model = with_markers("vllm:shouted", [])
    outcome = decode(model, model.by_bytes("So: CALL now"), [tool("now")], 3)
    assert outcome.calls == [("now", "{}")]
    assert outcome.shown == "So: "
    assert outcome.verdict is Verdict.CALL


def test_a_plugin_that_cannot_be_imported_is_refused() -> None:
    for path in ("/no/such.py", "no.such.module"):
        with pytest.raises(UsageError, match=rf"--tool-parser-plugin {path} cannot be imported"):
            load_plugin(path)


def test_parsers_that_read_what_a_row_reads_name_the_row() -> None:
    names = ["openai", "glm47", "qwen3_xml", "qwen3_json", "step3p5", "pythonic", "hermes"]
    assert named_formats(names) == (
        *("harmony", "glm", "qwen3_coder", "hermes", "qwen3_coder", "pythonic", "hermes"),
    )
    form = turn_format(["inline", "vllm:jamba"])
    assert form is not None
    assert form.parser == "jamba"


def test_a_parser_that_works_in_vllms_server_alone_is_left_to_it() -> None:
    assert with_parser(("hermes",), "hf") == ("hermes",)
    with pytest.raises(UsageError, match="'hf' reads answers only in vLLM's server"):
        named_formats(["hf"])


def test_the_servers_parser_replaces_what_the_template_shows() -> None:
    assert with_parser(("hermes", "inline"), None) == ("hermes", "inline")
    assert with_parser(("hermes", "inline"), "minimax_m3") == ("vllm:minimax_m3", "inline")
    assert with_parser(("hermes",), "minimax_m2") == ("minimax_m2",)
    assert with_parser((), "caesura_glm") == ("glm",)
