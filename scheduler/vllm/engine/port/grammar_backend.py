"""Grammars of XGrammar and of guidance in one engine.

vLLM 0.32 and 0.33 keep the grammar library of an engine's first structured request for all later
ones. Only XGrammar has grammars of calls, so that one JSON schema that only guidance takes would
fail each forced call and each typed answer until the engine ends.
"""

import json
import logging
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import torch
import xgrammar
from vllm.utils.mistral import is_mistral_tokenizer
from vllm.v1.structured_output import StructuredOutputManager
from vllm.v1.structured_output.backend_guidance import (
    GuidanceBackend,
    has_guidance_unsupported_json_features,
)
from vllm.v1.structured_output.backend_types import (
    StructuredOutputBackend,
    StructuredOutputGrammar,
    StructuredOutputOptions,
)
from vllm.v1.structured_output.backend_xgrammar import (
    XgrammarBackend,
    has_xgrammar_unsupported_json_features,
)

logger = logging.getLogger(__name__)


@dataclass
class BothBackends(StructuredOutputBackend):
    """XGrammar, and guidance for what XGrammar cannot express.

    Both write the same masks: a bit for each of the model's `vocab_size` tokens. Each library is
    loaded at its first grammar. Any thread may compile.
    """

    _loaded: dict[type[StructuredOutputBackend], StructuredOutputBackend] = field(
        default_factory=dict, init=False
    )
    _lock: Any = field(default_factory=Lock, init=False)

    def compile_grammar(
        self, request_type: StructuredOutputOptions, grammar_spec: str, **options: Any
    ) -> StructuredOutputGrammar:
        """Compile a grammar by the library that vLLM chooses for it in a fresh engine."""
        takes_guidance = self._takes_guidance(request_type, grammar_spec)
        is_schema = request_type == StructuredOutputOptions.JSON
        beyond = is_schema and has_xgrammar_unsupported_json_features(json.loads(grammar_spec))
        if takes_guidance and beyond:
            return self._by(GuidanceBackend, request_type, grammar_spec, options)
        try:
            return self._by(XgrammarBackend, request_type, grammar_spec, options)
        except Exception as error:
            if not takes_guidance:
                raise
            logger.info("guidance compiles a grammar that XGrammar refuses: %s", error)
            return self._by(GuidanceBackend, request_type, grammar_spec, options)

    def allocate_token_bitmask(self, max_num_seqs: int) -> torch.Tensor:
        """Return masks, of shape (max_num_seqs, vocab_size / 32 rounded up), of 32-bit words."""
        return xgrammar.allocate_token_bitmask(max_num_seqs, self.vocab_size)

    def destroy(self) -> None:
        """Close the libraries that were loaded."""
        for backend in self._loaded.values():
            backend.destroy()

    def _takes_guidance(self, request_type: StructuredOutputOptions, grammar_spec: str) -> bool:
        if request_type == StructuredOutputOptions.STRUCTURAL_TAG:
            return False  # guidance has only those of an older form
        if not GuidanceBackend.is_tokenizer_supported(self.tokenizer):
            return False
        is_schema = request_type == StructuredOutputOptions.JSON
        return not (is_schema and has_guidance_unsupported_json_features(json.loads(grammar_spec)))

    def _by(
        self,
        library: type[StructuredOutputBackend],
        request_type: StructuredOutputOptions,
        grammar_spec: str,
        options: dict[str, Any],
    ) -> StructuredOutputGrammar:
        with self._lock:
            if library not in self._loaded:
                self._loaded[library] = library(self.vllm_config, self.tokenizer, self.vocab_size)
        return self._loaded[library].compile_grammar(request_type, grammar_spec, **options)


def use_both_backends(manager: Any) -> None:
    """Let an engine use both libraries, unless its operator has chosen one.

    Tokenizers of Mistral's own make masks of another size, so that vLLM's choice stays.
    """
    if not isinstance(manager, StructuredOutputManager) or manager.backend is not None:
        return
    config, tokenizer = manager.vllm_config, getattr(manager, "tokenizer", None)
    if config.structured_outputs_config.backend != "auto" or tokenizer is None:
        return
    vocab_size = config.model_config.get_vocab_size()
    if is_mistral_tokenizer(tokenizer) or len(tokenizer) > vocab_size:
        return
    manager.backend = BothBackends(config, tokenizer, vocab_size)
