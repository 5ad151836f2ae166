"""Prompts with pictures, sounds and videos, by vLLM's own renderer and its processor of the model.

vLLM renders the messages, processes the media, and writes as many placeholder tokens for each as
the model has embeddings of it. The engine recognises a medium by the hash of its content, which is
also part of the hashes of KV blocks.

What users and tools spell of the model's special tokens stays text here too: vLLM renders the
messages, their spellings are cut and encoded as in every prompt, and vLLM gets the tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from vllm.exceptions import VLLMValidationError
from vllm.inputs import TokensInput, tokens_input
from vllm.inputs.engine import MultiModalInput, mm_input
from vllm.renderers.hf import HfRenderer
from vllm.renderers.params import ChatParams, TokenizeParams
from vllm.v1.engine.async_llm import AsyncLLM

from caesura.scheduler.errors import UsageError
from caesura.scheduler.messages import (
    MediaRules,
    Message,
    ToolSpec,
    behind_results,
    has_media,
    text_of,
)
from caesura.scheduler.vllm.client.rendering.render import Renderer
from caesura.scheduler.vllm.client.rendering.threads import RenderThreads


@dataclass(frozen=True, slots=True)
class Media:
    """The processed media of a prompt: vLLM's inputs, with the places of their placeholders."""

    processed: MultiModalInput | None = None

    def prompt(
        self, tokens: Sequence[int], cache_salt: str | None
    ) -> TokensInput | MultiModalInput:
        """Return vLLM's prompt of tokens that begin with those that were rendered."""
        # vLLM extends the list that it receives, so it gets a copy.
        if self.processed is None:
            return tokens_input(list(tokens), cache_salt=cache_salt)
        made = self.processed
        return mm_input(
            list(tokens),
            made["mm_kwargs"],
            made["mm_hashes"],
            made["mm_placeholders"],
            cache_salt=cache_salt,
        )


NO_MEDIA = Media()


class MediaRenderer:
    """Renders conversations with media for one engine."""

    def __init__(
        self,
        llm: AsyncLLM,
        renderer: Renderer,
        threads: RenderThreads,
        content_format: str = "auto",
    ) -> None:
        """Create it; `content_format` is vLLM's option `--chat-template-content-format`."""
        self.use(llm)
        own = getattr(llm.get_tokenizer(), "chat_template", None)
        self._template = renderer.chat_template or own
        self._renderer = renderer
        self._threads = threads
        self._cuts = isinstance(llm.renderer, HfRenderer)
        self._content_format = content_format
        self.rules = _rules(llm)

    def use(self, llm: AsyncLLM) -> None:
        """Render with the renderer of `llm`, which has replaced the one before it."""
        # Not the engine itself: it shuts down when the last reference to it is gone.
        self._vllms = llm.renderer

    async def prompt(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        template: Mapping[str, Any],
        prefill: bool,
    ) -> tuple[list[int], Media]:
        """Return the tokens of a conversation, placeholders included, and its media.

        The parameters are those of `Renderer.prompt`. Media are data URLs. Raises `UsageError` for
        media that the model does not take or that cannot be read, and `ContextOverflow`.
        """
        self._renderer.check_characters(sum(len(text_of(each.get("content"))) for each in messages))
        inside = any(each.get("role") == "tool" for each in messages if has_media([each]))
        try:
            return await self._rendered(messages, tools, template, prefill)
        except UsageError:
            if not inside:
                raise
        return await self._rendered(behind_results(messages), tools, template, prefill)

    async def _rendered(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        template: Mapping[str, Any],
        prefill: bool,
    ) -> tuple[list[int], Media]:
        cuts, by = self._cuts, self._renderer
        given = by.given(messages, prefill) if cuts else by.for_template(messages)
        shown = by.given_tools(tools) if cuts else [*map(dict, tools)] or None
        try:
            _, prompt = await self._vllms.render_messages_async(
                cast(Any, given), self._params(shown, template, prefill)
            )
            tokens = await self._literal_tokens(prompt.get("prompt")) if cuts else None
            if tokens is not None:
                prompt = cast(Any, {**prompt, "prompt_token_ids": tokens})
                prompt.pop("prompt")
            # The session refuses a prompt that is too long, in the words of all prompts.
            bounds = TokenizeParams(max_total_tokens=None, add_special_tokens=False)
            # The engine's own cache may have dropped what an earlier request has sent, so the
            # media go along with every request.
            made = await self._vllms.render_cmpl_async([prompt], bounds, skip_mm_cache=True)
        # vLLM asserts that the template has written a placeholder for each medium.
        except (VLLMValidationError, ValueError, RuntimeError, OSError, AssertionError) as error:
            raise UsageError(f"the messages cannot be rendered: {error}") from error
        processed = cast(MultiModalInput, made[0])
        if tokens is not None:
            self._check_literal(tokens, processed)
        return list(processed["prompt_token_ids"]), Media(processed)

    async def _literal_tokens(self, text: Any) -> list[int] | None:
        """Return the tokens of a rendered text in which something is cut, or None for vLLM's."""
        if not isinstance(text, str):
            kind = type(text).__name__
            raise UsageError(f"the messages cannot be rendered: vLLM made {kind} of them, not text")
        return await self._threads.run(partial(self._renderer.encode_rendered, text), text)

    def _check_literal(self, tokens: Sequence[int], made: MultiModalInput) -> None:
        """Raise `UsageError` if vLLM has made special tokens of what the messages spell.

        vLLM's processors put the placeholders among the tokens. Where they do not find the place,
        they decode all tokens and encode them again.
        """
        ranges = [each for kind in made["mm_placeholders"].values() for each in kind]
        held = {at for each in ranges for at in range(each.offset, each.offset + each.length)}
        ids = made["prompt_token_ids"]
        outside = (token for at, token in enumerate(ids) if at not in held)
        more = self._renderer.specials(outside) - self._renderer.specials(tokens)
        if more:
            spelled = ", ".join(map(self._renderer.text_of, more))
            raise UsageError(
                f"the messages spell special tokens of the model, {spelled}, which its processor"
                " of media cannot keep as text; leave them out"
            )

    def _params(
        self, tools: list[dict[str, Any]] | None, template: Mapping[str, Any], prefill: bool
    ) -> ChatParams:
        # Only a text can be encoded here; vLLM's other renderers encode what they render.
        as_text = {"tokenize": False} if self._cuts else {}
        return ChatParams(
            chat_template=self._template,
            chat_template_content_format=cast(Any, self._content_format),
            chat_template_kwargs={
                **template,
                "tools": tools,
                "add_generation_prompt": not prefill,
                "continue_final_message": prefill,
                **as_text,
            },
        )


def _rules(llm: AsyncLLM) -> MediaRules:
    config = llm.model_config
    if not config.supports_multimodal_inputs:
        return MediaRules()
    limits = dict(llm.renderer.get_mm_processor().info.allowed_mm_limits)
    return MediaRules(limits, tuple(config.allowed_media_domains or ()))
