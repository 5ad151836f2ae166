"""Tiny stand-ins for the Hugging Face models that vLLM's scheduler tests name.

The tests read a model's config, tokenizer and image processor but never its weights, and vLLM
resolves a model name as a path first: directories of the same names in the working directory
replace the hub.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

VOCAB_SIZE = 512
OPT_VOCAB_SIZE = 50272  # the tests use token ids of the real vocabulary, e.g. EOS 50256
IMAGE_SIZE = 336  # the real one: some tests rely on an image of 576 tokens
PATCH_SIZE = 14

OPT_MODELS = {"facebook/opt-125m": 768, "facebook/opt-350m": 1024}
LLAVA_MODEL = "llava-hf/llava-1.5-7b-hf"
# Any multimodal model does for the tests that name this one: they never look inside an image.
LLAVA_ALIASES = ("Qwen/Qwen2.5-VL-3B-Instruct",)
HYBRID_MODEL = "Qwen/Qwen3-Next-80B-A3B-Instruct"  # linear attention, and heads that draft tokens


def build_models(root: Path) -> None:
    """Write every model directory below `root`, replacing what an earlier version wrote."""
    for name, hidden_size in OPT_MODELS.items():
        _write_opt(_fresh(root / name), hidden_size)
    _write_llava(_fresh(root / LLAVA_MODEL))
    _write_hybrid(_fresh(root / HYBRID_MODEL))
    for alias in LLAVA_ALIASES:
        shutil.copytree(root / LLAVA_MODEL, _fresh(root / alias), dirs_exist_ok=True)


def _fresh(path: Path) -> Path:
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path


def _tokenizer(specials: list[str]):
    """A byte-level tokenizer without merges: its vocabulary needs no download."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: index for index, token in enumerate([*specials, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    # Without this `<image>` would be split into its characters.
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in specials])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        pad_token="<pad>",
    )


def _write_opt(path: Path, hidden_size: int) -> None:
    from transformers import OPTConfig

    OPTConfig(
        vocab_size=OPT_VOCAB_SIZE,
        hidden_size=hidden_size,
        word_embed_proj_dim=hidden_size,
        ffn_dim=4 * hidden_size,
        num_hidden_layers=12,
        num_attention_heads=hidden_size // 64,
        max_position_embeddings=2048,
        architectures=["OPTForCausalLM"],
        dtype="float16",
    ).save_pretrained(path)
    _tokenizer(["<s>", "<pad>", "</s>", "<unk>"]).save_pretrained(path)


def _write_hybrid(path: Path) -> None:
    from transformers import Qwen3NextConfig

    Qwen3NextConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=16,
        linear_value_head_dim=16,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=32,
        shared_expert_intermediate_size=32,
        num_nextn_predict_layers=1,
        architectures=["Qwen3NextForCausalLM"],
        dtype="float16",
    ).save_pretrained(path)
    _tokenizer(["<s>", "<pad>", "</s>", "<unk>"]).save_pretrained(path)


def _write_llava(path: Path) -> None:
    from transformers import (
        CLIPImageProcessorPil,
        CLIPVisionConfig,
        LlamaConfig,
        LlavaConfig,
        LlavaProcessor,
    )

    tokenizer = _tokenizer(["<unk>", "<s>", "</s>", "<pad>", "<image>"])
    vision = CLIPVisionConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        image_size=IMAGE_SIZE,
        patch_size=PATCH_SIZE,
        projection_dim=64,
    )
    text = LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=4096,
        architectures=["LlamaForCausalLM"],
    )
    LlavaConfig(
        vision_config=vision,
        text_config=text,
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        architectures=["LlavaForConditionalGeneration"],
        dtype="float16",
    ).save_pretrained(path)
    size = {"height": IMAGE_SIZE, "width": IMAGE_SIZE}
    LlavaProcessor(
        image_processor=CLIPImageProcessorPil(size={"shortest_edge": IMAGE_SIZE}, crop_size=size),
        tokenizer=tokenizer,
        patch_size=PATCH_SIZE,
        vision_feature_select_strategy="default",
        image_token="<image>",
        num_additional_image_tokens=1,
    ).save_pretrained(path)


if __name__ == "__main__":
    build_models(Path(sys.argv[1]))
