"""Follow-ups continue from the tokens of an answer, with templates of real models."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from vllm.tokenizers.mistral import MistralTokenizer

from caesura.scheduler.answers import Answers, FollowUp
from caesura.scheduler.messages import Message, Sampling, SessionSpec
from caesura.scheduler.vllm.client.rendering.mistral import MistralRenderer
from caesura.scheduler.vllm.client.rendering.render import Renderer
from caesura.scheduler.vllm.client.rendering.splice import Splicer
from caesura.scheduler.vllm.client.rendering.threads import RenderThreads
from tests.scheduler.real_templates import CONTEXT_TOKENS, ENDS, renderer_of
from tests.scheduler.tekken import write_tekken

SYSTEM = {"role": "system", "content": "Be brief."}
QUESTION = {"role": "user", "content": "What is 1+2?"}
NEXT = {"role": "user", "content": "And 2+2?"}
THOUGHT = "<think>\nOne and two.\n</think>\n\n"
CALL = {
    "role": "assistant",
    "content": "Let me see.",
    "tool_calls": [
        {
            "id": "abcdefghi",
            "type": "function",
            "function": {"name": "add", "arguments": '{"a":1,  "b":2}'},
        }
    ],
}
RESULT = {"role": "tool", "tool_call_id": "abcdefghi", "name": "add", "content": "3"}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Add.",
            "parameters": {"type": "object", "properties": {"a": {}, "b": {}}},
        },
    }
]
SPEC = SessionSpec(TOOLS)
PLAIN = SessionSpec()
FREE = Sampling()
ANSWER_ENDS = {"glm4moe": "<|user|>", "gptoss": "<|return|>"}
"""The token that ends an answer, where that is not the first one of `ENDS`."""
REPLACED_ENDS = ("gptoss",)
"""These templates end an earlier answer with another token, which stands instead of the first."""
WRITTEN_CALL = 'Let me see. {"name": "add", "arguments": {"a":1,  "b":2}}'
"""What a model wrote for `CALL`, in no template's spelling."""
# It writes an answer only while it is the last message.
FORGETFUL = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{{ m.content if loop.last else '' }}<|im_end|>\n{% endfor %}"
)


class World:
    """A renderer, a memory, and a conversation whose answer is remembered."""

    def __init__(self, renderer: Renderer, *, enabled: bool = True) -> None:
        self.renderer = renderer
        threads = RenderThreads()
        self.splicer = Splicer(renderer, threads, CONTEXT_TOKENS, Answers() if enabled else None)

    async def answered(
        self,
        messages: Sequence[Message],
        answer: Message,
        written: str,
        end: Sequence[int],
        spec: SessionSpec = PLAIN,
    ) -> list[int]:
        """Remember that the model wrote `written` and ended with `end`; return all tokens."""
        prompt = self.renderer.prompt(messages, spec.tools)
        tokens = [*prompt, *self.renderer.encode(written), *end]
        await self.splicer.remember([*messages, answer], spec, tokens)
        return tokens

    async def follow(
        self, *messages: Message, spec: SessionSpec = PLAIN, sampling: Sampling = FREE
    ) -> FollowUp:
        found = await self.splicer.follow_up(messages, spec, sampling)
        assert found is not None
        return found

    async def why(self, *messages: Message, **settings: Any) -> str:
        """Return why a conversation is rendered."""
        found = await self.follow(*messages, **settings)
        assert (found.report.outcome, found.tokens) == ("rendered", None)
        return found.report.why


@pytest.mark.parametrize("template", ENDS)
async def test_only_what_is_new_is_rendered(template: str) -> None:
    """The answer's tokens stay, and behind them stands what the template itself writes there."""
    tokenizer, renderer = renderer_of(template)
    world = World(renderer)
    end = tokenizer.convert_tokens_to_ids(ANSWER_ENDS.get(template, ENDS[template][0]))
    answer = {"role": "assistant", "content": f"{THOUGHT}It is 3."}
    tokens = await world.answered([SYSTEM, QUESTION], answer, f"{THOUGHT}It is  3.", [end])
    tokens = tokens[:-1] if template in REPLACED_ENDS else tokens
    found = await world.follow(SYSTEM, QUESTION, answer, NEXT)
    assert (found.report.outcome, found.report.why) == ("spliced", "unchanged")
    assert found.report.spliced_tokens == len(tokens)
    assert found.tokens is not None and found.tokens[: len(tokens)] == tokens
    new = tokenizer.decode(found.tokens[len(tokens) :])
    whole = tokenizer.decode(renderer.prompt([SYSTEM, QUESTION, answer, NEXT], ()))
    assert whole.endswith(new)
    assert new.count("And 2+2?") == 1 and "It is" not in new


# Gemma 4's template moves a text beside calls behind their results.
@pytest.mark.parametrize(
    "template", [name for name in ENDS if name not in ("deepseek_r1_distill", "gemma4")]
)
@pytest.mark.parametrize("later", [(RESULT,), (RESULT, NEXT)], ids=["result", "result and user"])
async def test_results_of_a_clients_tool_are_appended(
    template: str, later: tuple[Message, ...]
) -> None:
    tokenizer, renderer = renderer_of(template)
    world = World(renderer)
    text = "<|observation|>" if template == "glm4moe" else ENDS[template][0]
    end = tokenizer.convert_tokens_to_ids(text)
    written = THOUGHT + WRITTEN_CALL
    tokens = await world.answered([QUESTION], CALL, written, [end], SPEC)
    found = await world.follow(QUESTION, CALL, *later, spec=SPEC)
    assert found.tokens is not None and found.tokens[: len(tokens)] == tokens
    new = tokenizer.decode(found.tokens[len(tokens) :])
    whole = tokenizer.decode(renderer.prompt([QUESTION, CALL, *later], TOOLS))
    assert whole.endswith(new)
    assert "Let me see" not in new and "arguments" not in new


@pytest.mark.parametrize("template", ENDS)
async def test_system_messages_between_questions_are_appended(template: str) -> None:
    tokenizer, renderer = renderer_of(template)
    world = World(renderer)
    answer = {"role": "assistant", "content": "It is 3."}
    before = [QUESTION, {"role": "system", "content": "The day is new."}]
    end = tokenizer.convert_tokens_to_ids(ANSWER_ENDS.get(template, ENDS[template][0]))
    tokens = await world.answered(before, answer, "It is  3.", [end])
    tokens = tokens[:-1] if template in REPLACED_ENDS else tokens
    rule = {"role": "system", "content": "Write in the folder."}
    found = await world.follow(*before, answer, rule, NEXT)
    assert found.tokens is not None and found.tokens[: len(tokens)] == tokens
    new = tokenizer.decode(found.tokens[len(tokens) :])
    assert "The day is new." not in new
    assert 0 <= new.index(rule["content"]) < new.index(NEXT["content"])


@pytest.mark.parametrize("template", ["qwen3", "deepseek_r1_distill", "glm4moe"])
async def test_templates_that_drop_thinking_lose_what_splicing_keeps(template: str) -> None:
    tokenizer, renderer = renderer_of(template)
    world = World(renderer)
    answer = {"role": "assistant", "content": f"{THOUGHT}It is 3."}
    end = tokenizer.convert_tokens_to_ids(ENDS[template][0])
    tokens = await world.answered([QUESTION], answer, f"{THOUGHT}It is 3.", [end])
    rendered = renderer.prompt([QUESTION, answer, NEXT], ())
    assert rendered[: len(tokens)] != tokens
    found = await world.follow(QUESTION, answer, NEXT)
    assert found.tokens is not None and found.tokens[: len(tokens)] == tokens
    assert "One and two." not in tokenizer.decode(rendered)


@pytest.mark.parametrize(
    ("template", "begin"),
    [
        ("qwen3", "<|im_end|>\n<|im_start|>user\nAnd 2+2?"),
        ("gptoss", "<|end|><|start|>user<|message|>And 2+2?"),
    ],
)
async def test_an_answer_cut_by_a_token_limit_gets_its_end(template: str, begin: str) -> None:
    tokenizer, renderer = renderer_of(template)
    world = World(renderer)
    answer = {"role": "assistant", "content": "It is"}
    tokens = await world.answered([QUESTION], answer, "It is", [])
    found = await world.follow(QUESTION, answer, NEXT)
    assert found.tokens is not None and found.tokens[: len(tokens)] == tokens
    assert tokenizer.decode(found.tokens[len(tokens) :]).startswith(begin)


async def test_a_conversation_goes_on_over_several_answers() -> None:
    tokenizer, renderer = renderer_of("qwen3")
    world, end = World(renderer), tokenizer.convert_tokens_to_ids("<|im_end|>")
    messages: list[Message] = [QUESTION]
    tokens = renderer.prompt(messages, ())
    for number in range(4):
        answer = {"role": "assistant", "content": f"{THOUGHT}Answer {number}."}
        tokens = [*tokens, *renderer.encode(str(answer["content"])), end]
        await world.splicer.remember([*messages, answer], PLAIN, tokens)
        messages += [answer, NEXT]
        found = await world.follow(*messages)
        assert found.tokens is not None and found.tokens[: len(tokens)] == tokens
        tokens = found.tokens
    assert tokenizer.decode(tokens).count("One and two.") == 4


async def test_changed_histories_are_rendered() -> None:
    _, renderer = renderer_of("qwen3")
    world = World(renderer)
    answer = {"role": "assistant", "content": "It is 3."}
    await world.answered([QUESTION], answer, "It is 3.", [])
    other = {"role": "assistant", "content": "It is 4."}
    assert await world.why(QUESTION, other, NEXT) == "changed"
    assert await world.why(NEXT, other, NEXT) == "unknown"
    assert await world.why(SYSTEM, QUESTION, answer, NEXT) == "changed"
    assert await world.why(NEXT, answer, NEXT) == "changed"
    assert await world.why(QUESTION, answer, NEXT, spec=SPEC) == "changed"
    assert await world.why(QUESTION, answer, NEXT, other, NEXT) == "unknown"
    assert await world.splicer.follow_up([QUESTION, answer], PLAIN, FREE) is None
    assert (await world.follow(QUESTION, answer, NEXT)).tokens is not None


async def test_a_conversation_with_a_picture_is_rendered() -> None:
    """Its tokens are equal for every picture of that size."""
    _, renderer = renderer_of("qwen3")
    world = World(renderer)
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,eA=="}}
    seen, answer = {"role": "user", "content": [image]}, {"role": "assistant", "content": "A cat."}
    await world.splicer.remember([seen, answer], PLAIN, renderer.encode("A cat."))
    assert await world.why(seen, answer, NEXT) == "media"


async def test_a_template_that_forgets_the_answer_renders_all() -> None:
    tokenizer, renderer = renderer_of("bundled")
    tokenizer.chat_template = FORGETFUL
    world, answer = World(renderer), {"role": "assistant", "content": "It is 3."}
    await world.answered([QUESTION], answer, "It is 3.", [])
    assert await world.why(QUESTION, answer, NEXT) == "template"


async def test_a_template_that_refuses_the_new_messages_renders_all() -> None:
    tokenizer, renderer = renderer_of("bundled")
    answer = {"role": "assistant", "content": "It is 3."}
    world = World(renderer)
    await world.answered([QUESTION], answer, "It is 3.", [])
    tokenizer.chat_template = "{{ raise_exception('no') if messages | length > 1 }}"
    assert await world.why(QUESTION, answer, NEXT) == "template"


async def test_splicing_leaves_room_for_the_answer() -> None:
    _, renderer = renderer_of("bundled")
    answer = {"role": "assistant", "content": "It is 3."}
    world = World(renderer)
    free = CONTEXT_TOKENS // 4
    tokens = await world.answered([QUESTION], answer, "a " * (CONTEXT_TOKENS // 4), [])
    long = {"role": "user", "content": "b " * (CONTEXT_TOKENS // 2)}
    assert len(tokens) + len(renderer.encode(long["content"])) > CONTEXT_TOKENS - free
    assert await world.why(QUESTION, answer, long) == "room"
    found = await world.follow(QUESTION, answer, long, sampling=Sampling(max_tokens=8))
    assert found.report.outcome == "spliced"


async def test_switched_off_nothing_is_spliced() -> None:
    _, renderer = renderer_of("bundled")
    world, answer = World(renderer, enabled=False), {"role": "assistant", "content": "It is 3."}
    await world.answered([QUESTION], answer, "It is 3.", [])
    assert await world.why(QUESTION, answer, NEXT) == "off"


async def test_a_live_session_keeps_its_thinking_too() -> None:
    tokenizer, renderer = renderer_of("qwen3")
    turn = {"role": "assistant", "content": f"{THOUGHT}It is 3."}
    tokens = [*renderer.prompt([QUESTION], ()), *renderer.encode(str(turn["content"]))]
    appended = await World(renderer).splicer.append(turn, [NEXT], PLAIN, tokens, FREE)
    assert appended is not None and not appended.instead
    assert tokenizer.decode(appended.tokens).startswith("<|im_end|>\n<|im_start|>user\nAnd 2+2?")
    off = World(renderer, enabled=False).splicer
    assert await off.append(turn, [NEXT], PLAIN, tokens, FREE) is None
    full = [*tokens, *[tokens[0]] * CONTEXT_TOKENS]
    assert await World(renderer).splicer.append(turn, [NEXT], PLAIN, full, FREE) is None


@pytest.mark.parametrize(
    ("version", "spec", "why"), [(3, SPEC, "template"), (13, SPEC, "unchanged")]
)
async def test_mistrals_own_tokenizers(
    version: int, spec: SessionSpec, why: str, tmp_path: Path
) -> None:
    """Version 3 writes the tools, and the system's message, into the last question."""
    tokenizer = MistralTokenizer.from_pretrained(str(write_tekken(tmp_path, version)))
    end = tokenizer.eos_token_id
    renderer = MistralRenderer(tokenizer, frozenset({end}), CONTEXT_TOKENS)
    world, answer = World(renderer), {"role": "assistant", "content": "It is 3."}
    tokens = await world.answered([QUESTION], answer, "It is  3.", [end], spec)
    found = await world.follow(QUESTION, answer, NEXT, spec=spec)
    assert found.report.why == why
    if found.tokens is not None:
        assert found.tokens[: len(tokens)] == tokens
        whole = renderer.prompt([QUESTION, answer, NEXT], spec.tools)
        assert whole[-len(found.tokens) + len(tokens) :] == found.tokens[len(tokens) :]
    await world.answered([SYSTEM, QUESTION], answer, "It is 3.", [end])
    moved = await world.follow(SYSTEM, QUESTION, answer, NEXT)
    assert moved.report.why == why


async def test_a_live_session_gets_the_end_of_an_earlier_answer() -> None:
    tokenizer, renderer = renderer_of("gptoss")
    prompt = renderer.prompt([QUESTION], ())
    sampled = renderer.encode("<|channel|>final<|message|>It is 3.<|return|>")
    turn = {"role": "assistant", "content": "It is 3."}
    about = (turn, [NEXT], PLAIN, [*prompt, *sampled], FREE)
    appended = await World(renderer).splicer.append(*about)
    assert appended is not None and appended.instead
    whole = tokenizer.decode(appended.joined([*prompt, *sampled]))
    assert whole == tokenizer.decode(renderer.prompt([QUESTION, turn, NEXT], ()))
