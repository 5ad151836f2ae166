"""A Stable Diffusion of random weights, small enough to paint in a second: `python FILE DIRECTORY`.

Its parts are the real ones, made from configurations; what it paints is noise.
"""

import json
import sys
import tempfile
from pathlib import Path

import torch
from diffusers import AutoencoderKL, DDIMScheduler, StableDiffusionPipeline, UNet2DConditionModel
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer


def tokenizer() -> CLIPTokenizer:
    """One that knows single letters."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["!", *letters, *(f"{each}</w>" for each in letters)]
    words += ["<|startoftext|>", "<|endoftext|>"]
    with tempfile.TemporaryDirectory() as name:
        vocabulary, merges = Path(name, "vocab.json"), Path(name, "merges.txt")
        vocabulary.write_text(json.dumps({word: index for index, word in enumerate(words)}))
        merges.write_text("#version: 0.2\n")
        return CLIPTokenizer(str(vocabulary), str(merges), model_max_length=16)


def main(directory: str) -> None:
    """Make the pipeline and save it."""
    torch.manual_seed(0)
    words = tokenizer()
    text = CLIPTextConfig(
        bos_token_id=words.bos_token_id,
        eos_token_id=words.eos_token_id,
        pad_token_id=words.pad_token_id,
        vocab_size=len(words),
        hidden_size=32,
        intermediate_size=37,
        num_attention_heads=4,
        num_hidden_layers=2,
        max_position_embeddings=16,
    )
    pipeline = StableDiffusionPipeline(
        vae=AutoencoderKL(
            block_out_channels=[32, 64],
            down_block_types=["DownEncoderBlock2D"] * 2,
            up_block_types=["UpDecoderBlock2D"] * 2,
            latent_channels=4,
        ),
        text_encoder=CLIPTextModel(text),
        tokenizer=words,
        unet=UNet2DConditionModel(
            block_out_channels=(32, 64),
            layers_per_block=1,
            sample_size=32,
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
            cross_attention_dim=32,
        ),
        scheduler=DDIMScheduler(),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    pipeline.save_pretrained(directory)


if __name__ == "__main__":
    main(sys.argv[1])
