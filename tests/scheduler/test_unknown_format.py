"""A model whose format is unknown, or whose tokens cannot be read, says so."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from tokenizers import Tokenizer, models
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from vllm.config import ModelConfig

from caesura.intercept.calls.vocabulary import Vocabulary
from caesura.runtime.launch import BUNDLED_MODEL
from caesura.scheduler.errors import UsageError
from caesura.scheduler.messages import SessionSpec
from caesura.scheduler.vllm.client.api_server import parses_alone
from caesura.scheduler.vllm.client.options import parse_engine_args
from caesura.scheduler.vllm.engine import calls
from caesura.scheduler.vllm.engine.calls import CallDetector
from caesura.scheduler.vllm.tokenizer import check_vocabulary, vocabulary_from
from caesura.scheduler.vllm.wire import WATCH_KEY
from tests.scheduler.unstarted import TOOLS, bundled, engine_with


@pytest.mark.parametrize("template", [None, "{{ messages }}"])
def test_tools_of_a_model_of_unknown_format_are_refused(template: str | None) -> None:
    engine = engine_with(bundled(template))
    assert engine.language.formats == ()
    with pytest.raises(
        UsageError, match=r"how model-x writes calls is not known.*--format.*hermes"
    ):
        engine.open(SessionSpec(TOOLS))
    # Text is decoded all the same, and a client's own tools may be shown.
    for spec in (SessionSpec(), SessionSpec(TOOLS, pausing=False)):
        engine.open(spec)
    engine_with(bundled(template), ["hermes"]).open(SessionSpec(TOOLS))


class SlowSentencePiece:
    """A SentencePiece tokenizer as `transformers` has it in plain Python."""

    tokens = ("<0x0A>", "\u2581Input", ":", "\u2581", "[", "é")

    def __len__(self) -> int:
        return len(self.tokens)

    def convert_ids_to_tokens(self, ids: Sequence[int]) -> list[str]:
        return [self.tokens[index] for index in ids]


def test_slow_sentencepiece_tokens_are_read_as_such() -> None:
    vocabulary = vocabulary_from(SlowSentencePiece())
    read = [vocabulary.bytes_of(token) for token in range(6)]
    assert read == [b"\n", b" Input", b":", b" ", b"[", "é".encode()]


def test_tokens_whose_bytes_are_not_the_text_are_refused_at_the_start() -> None:
    words = {"A": 0, "call": 1, "[UNK]": 2, "Input": 3}
    backend = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    tokenizer.chat_template = "<tool_call>"
    wrong = Vocabulary([b"x", b"y", b"z", b"w"])
    with pytest.raises(ValueError, match="cannot be read"):
        check_vocabulary(tokenizer, wrong)


@pytest.mark.parametrize("error", [ValueError, AttributeError, RuntimeError])
def test_a_vocabulary_that_cannot_be_read_does_not_end_the_engine(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise error("no such vocabulary")

    monkeypatch.setattr(calls, "cached_tokenizer_from_config", fail)
    config: Any = SimpleNamespace(model_config=SimpleNamespace(skip_tokenizer_init=False))
    detector = CallDetector(config)
    params = SimpleNamespace(
        extra_args={WATCH_KEY: {"formats": ["hermes"]}}, stop_token_ids=[], eos_token_id=7
    )
    request: Any = SimpleNamespace(sampling_params=params, request_id="r", output_token_ids=[1, 2])
    watch = detector.watch_for(request)
    assert watch is None or watch.first_stop([1, 2]) is None
    assert detector.called(request, None) is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--tool-call-parser", "hermes"], "--tool-call-parser: .*HTTP server.*--format NAME"),
        (["--enable_auto_tool_choice"], "--enable-auto-tool-choice: .*--format NAME"),
        (["--chat-template=x.jinja"], "--chat-template: .*chat_template.jinja"),
        (["--root-path", "/x"], "--root-path: .*only engine options"),
        (["--nonsense", "3"], "vLLM does not know --nonsense 3"),
    ],
)
def test_options_of_vllms_server_are_told_from_unknown_ones(
    arguments: list[str], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        parse_engine_args(arguments)


THINKS = "{{ messages }}<think></think><tool_call>"


@pytest.mark.parametrize(
    ("template", "formats", "parser", "alone"),
    [
        (THINKS, ["hermes"], "", False),
        (THINKS, ["hermes"], "qwen3", False),
        ("{{ messages }}<tool_call>", ["hermes"], "hunyuan_a13b", True),
        (None, None, "", True),
    ],
)
def test_only_what_cannot_be_read_here_is_left_to_vllms_server(
    template: str | None, formats: list[str] | None, parser: str, alone: bool
) -> None:
    tokenizer = bundled(template)
    tokenizer.add_tokens(["<think>", "</think>"] if template == THINKS else [])
    assert parses_alone(engine_with(tokenizer, formats, parser)) is alone


@pytest.mark.parametrize(("chosen", "tool"), [(None, None), (("glm",), "search")])
def test_calls_are_detected_in_the_formats_that_were_chosen(
    chosen: tuple[str, ...] | None, tool: str | None
) -> None:
    tokens = AutoTokenizer.from_pretrained(BUNDLED_MODEL).encode(
        "<tool_call>search\n<arg_key>q</arg_key>\n<arg_value>x</arg_value>\n</tool_call>"
    )
    config: Any = SimpleNamespace(model_config=ModelConfig(model=str(BUNDLED_MODEL)))
    request: Any = SimpleNamespace(output_token_ids=tokens)
    found = CallDetector(config, format_names=chosen).called(request, None)
    assert (found and found.tool) == tool
