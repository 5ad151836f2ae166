"""Facts from a model's tokenizer: the bytes of its tokens, and the model's formats of calls."""

from collections.abc import Collection, Iterable
from typing import Any

from vllm.utils.mistral import is_mistral_tokenizer

from caesura.intercept.calls.detection import detect
from caesura.intercept.calls.formats import BY_PARSER, HARMONY, MISTRAL, resolve
from caesura.intercept.calls.thinking import REGIONS, regions_shown
from caesura.intercept.calls.vocabulary import Vocabulary, vocabulary_of
from caesura.scheduler.errors import UsageError

_METASPACE = "\u2581"
_SAMPLE = 'A call: [f(a="1") -> or\nAction Input: {"a": [1]}\n<b>'


def template_of(tokenizer: Any, given: str | None = None) -> str:
    """Return the chat template with which prompts are written, or an empty text without one.

    It is the `given` one, or else the tokenizer's, all of them if it has several.
    """
    template = given or getattr(tokenizer, "chat_template", None) or ""
    return template if isinstance(template, str) else "\n".join(template.values())


def format_names(tokenizer: Any, template: str) -> tuple[str, ...]:
    """Return the names of the formats in which the model writes calls; empty if unknown.

    The chat template shows them. Mistral's own tokenizers have no template and a single format.
    """
    if is_mistral_tokenizer(tokenizer):
        return (MISTRAL.name,) if MISTRAL.opens[0] in tokenizer.get_vocab() else ()
    return detect(template)


def thinking_regions(
    tokenizer: Any, template: str, formats: Collection[str], reasoning_parser: str
) -> tuple[str, ...]:
    """Return the openers of the regions in which the model thinks; empty if it has none.

    The region is that of `reasoning_parser`, a name of vLLM's, if that has fixed markers.
    Otherwise the chat template or the vocabulary shows the regions. The channels of `harmony` are
    no regions. Raises `UsageError` if vLLM does not know the parser or it does not fit the model.
    """
    if HARMONY.name in formats:
        return ()
    if reasoning_parser and (region := _parsed_region(tokenizer, reasoning_parser)):
        return (region,)
    return regions_shown(template, tokenizer.get_vocab())


def _parsed_region(tokenizer: Any, reasoning_parser: str) -> str:
    """Return the opener of a reasoning parser of vLLM's, or an empty text if it is not known."""
    # A late import, since it loads all parsers, which most models do not need.
    from vllm.reasoning import ReasoningParserManager

    try:
        parser = ReasoningParserManager.get_reasoning_parser(reasoning_parser)(tokenizer)
    except Exception as error:
        raise UsageError(
            f"--reasoning-parser {reasoning_parser} cannot be used: {error}"
        ) from error
    opener = (parser.reasoning_start_str or "").strip()
    closer = (parser.reasoning_end_str or "").strip()
    return opener if REGIONS.get(opener) == closer else ""


def writes_bytes(tokenizer: Any) -> bool:
    """Return whether text must be decoded from the tokens' bytes.

    vLLM's detokenizer omits control tokens of Mistral's tokenizers, such as the one between a
    tool's name and the id of its call.
    """
    return is_mistral_tokenizer(tokenizer) and tokenizer.is_tekken


def reads_special_tokens(tokenizer: Any, formats: Iterable[str]) -> bool:
    """Return whether calls or thinking are written with special tokens of the model.

    If not, special tokens never belong to an answer's text.
    """
    formats = tuple(formats)
    decoder = getattr(tokenizer, "added_tokens_decoder", None)
    if decoder is None or any(name.startswith(BY_PARSER) for name in formats):
        return True
    written = [*REGIONS, *REGIONS.values()]
    for form in resolve(formats, ()):
        written += [*form.opens, form.closes or "", *form.anchors, *form.section, form.shape]
    return any(
        token.content in text for token in decoder.values() if token.special for text in written
    )


def vocabulary_from(tokenizer: Any) -> Vocabulary:
    """Return the vocabulary of a tokenizer of `transformers` or of mistral-common."""
    if is_mistral_tokenizer(tokenizer):
        return _of_mistral(tokenizer)
    raw = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    decoder = getattr(tokenizer, "added_tokens_decoder", {})
    added = {token_id: token.content for token_id, token in decoder.items()}
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        byte_level = "ByteLevel" in str(backend.decoder)
    else:
        # A byte-level vocabulary writes that character as three others.
        byte_level = not any(isinstance(each, str) and _METASPACE in each for each in raw)
    return vocabulary_of(raw, added, byte_level)


def check_vocabulary(tokenizer: Any, vocabulary: Vocabulary) -> None:
    """Raise `ValueError` if the bytes of tokens are not the text that the tokenizer decodes."""
    tokens = tokenizer.encode(_SAMPLE, add_special_tokens=False)
    read = b"".join(vocabulary.bytes_of(token) for token in tokens).decode(errors="replace")
    decoded = tokenizer.decode(tokens)
    if read.strip() != decoded.strip():
        raise ValueError(
            f"the bytes of the tokens of {type(tokenizer).__name__} cannot be read:"
            f" {decoded!r} reads as {read!r}"
        )


def _of_mistral(tokenizer: Any) -> Vocabulary:
    own, ids = tokenizer.tokenizer, range(len(tokenizer))
    special = {token_id: own.id_to_piece(token_id) for token_id in ids if own.is_special(token_id)}
    if not tokenizer.is_tekken:
        texts = [own.id_to_piece(token_id) for token_id in ids]
        return vocabulary_of(texts, special, byte_level=False)
    return Vocabulary(
        [
            special[token_id].encode() if token_id in special else own.id_to_byte_piece(token_id)
            for token_id in ids
        ],
        {token_id: text.encode() for token_id, text in special.items()},
    )
