"""A tiny vision model with random weights, and pictures for it."""

import base64
import io
import random
import tempfile
from functools import cache
from typing import Any

import torch
from PIL import Image
from transformers import (
    AutoTokenizer,
    Idefics3Config,
    Idefics3ForConditionalGeneration,
    Idefics3ImageProcessorPil,
    Idefics3Processor,
    Idefics3VisionConfig,
)

from caesura.runtime.launch import BUNDLED_MODEL
from tests.engine.core import language

SIZE, PATCH = 32, 4
PLACEHOLDERS = (SIZE // PATCH) ** 2
"""The tokens of a picture, which fill two blocks of 32."""
IMAGE, AROUND, WHOLE = "<image>", "<fake_token_around_image>", "<global-img>"


@cache
def vision_model() -> str:
    """An Idefics3 whose language model is a tiny Llama, with the bundled model's tokenizer."""
    directory = tempfile.mkdtemp(prefix="caesura-vision-model-")
    torch.manual_seed(7)
    tokenizer = AutoTokenizer.from_pretrained(BUNDLED_MODEL)
    names = [IMAGE, AROUND, WHOLE, "<end_of_utterance>"]
    tokenizer.add_special_tokens({"additional_special_tokens": names})
    vision = Idefics3VisionConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        image_size=SIZE,
        patch_size=PATCH,
        initializer_range=0.2,
    )
    config = Idefics3Config(
        vision_config=vision,
        text_config=language(1216, pad_token_id=0),
        image_token_id=tokenizer.convert_tokens_to_ids(IMAGE),
        scale_factor=1,
        tie_word_embeddings=False,
        pad_token_id=0,
    )
    Idefics3ForConditionalGeneration(config).save_pretrained(directory)
    edge = {"longest_edge": SIZE}
    Idefics3Processor(
        image_processor=Idefics3ImageProcessorPil(
            size=edge, max_image_size=edge, do_image_splitting=False
        ),
        tokenizer=tokenizer,
        image_seq_len=PLACEHOLDERS,
        chat_template=tokenizer.chat_template,
    ).save_pretrained(directory)
    return directory


@cache
def picture(seed: int) -> str:
    """A picture of random colours, as a data URL."""
    image = Image.frombytes("RGB", (SIZE, SIZE), random.Random(seed).randbytes(3 * SIZE * SIZE))
    data = io.BytesIO()
    image.save(data, "PNG")
    return f"data:image/png;base64,{base64.b64encode(data.getvalue()).decode()}"


def shown(text: str, *seeds: int) -> dict[str, Any]:
    """A message with a text and pictures."""
    parts = [{"type": "image_url", "image_url": {"url": picture(seed)}} for seed in seeds]
    return {"role": "user", "content": [{"type": "text", "text": text}, *parts]}
