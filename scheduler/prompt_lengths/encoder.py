"""Encoders and causal models with a head: SSJF's proxy, LAMPS' classifier, and small ones.

Only training and the predictor's own process import this module, since it imports torch.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel, AutoTokenizer, BertConfig, BertModel

from caesura.scheduler.prompt_lengths.learner import MAX_CHARACTERS, Loss, word_ids
from caesura.scheduler.prompt_lengths.objectives import Array

HEAD_FILE = "head.safetensors"
FORM_FILE = "encoder.json"
MODEL_FOLDER = "encoder"
POOLS = ("cls", "mean", "last")
MAX_TOKENS = 512
"""The last tokens of a prompt that are read (SSJF, section 3.2)."""

HASHED_WORDS = 8192
MAX_GRADIENT = 1.0
WEIGHT_DECAY = 0.01
START_SHARE = 0.1
"""The share of a new last layer's weights that is kept, so that its constants lead at first."""


@dataclass(frozen=True, slots=True)
class Form:
    """How a model reads prompts and what stands on it.

    `pool` takes the first token's hidden state (`cls`), the mean, or the last token's (`last`,
    for causal models). The head has two layers (SSJF) or is linear (LAMPS). With `hashed` the
    model reads hashed words, else the tokens of its own tokenizer; at most `tokens` of them.
    """

    width: int
    pool: str
    layers: int
    hashed: bool
    tokens: int

    def __post_init__(self) -> None:
        if self.pool not in POOLS or self.layers not in (1, 2) or not 1 <= self.tokens <= 8192:
            raise ValueError(
                f"an encoder needs a pool of {', '.join(POOLS)}, 1 or 2 layers and 1 to 8192"
                f" tokens, got {self!r}"
            )


class Encoder:
    """A Hugging Face model with a head, trained by AdamW."""

    kind = "encoder"

    def __init__(self, body: Any, tokenizer: Any, form: Form) -> None:
        """Create it from a model, and its tokenizer unless the form has hashed words."""
        self._body, self._tokenizer, self.form = body.float(), tokenizer, form
        size = int(body.config.hidden_size)
        inner = [torch.nn.Linear(size, size), torch.nn.ReLU()] if form.layers == 2 else []
        self._head = torch.nn.Sequential(*inner, torch.nn.Linear(size, form.width))
        self._frozen = False
        self._optimizer: Any = None

    # -- making and loading ----------------------------------------------------------------------

    @classmethod
    def small(cls, width: int, layers: int = 2, hidden: int = 96, seed: int = 0) -> "Encoder":
        """Return a small BERT with random weights that reads hashed words."""
        torch.manual_seed(seed)
        config = BertConfig(
            vocab_size=HASHED_WORDS,
            hidden_size=hidden,
            num_hidden_layers=layers,
            num_attention_heads=4,
            intermediate_size=2 * hidden,
            max_position_embeddings=128,
        )
        form = Form(width, "mean", 2, True, 128)
        return cls(BertModel(config, add_pooling_layer=False), None, form)

    @classmethod
    def of(cls, folder: Path, width: int, layers: int, pool: str | None, seed: int) -> "Encoder":
        """Return a pretrained model of a folder with a new head; nothing is downloaded.

        Without a `pool` a causal model gets `last`, and any other `cls`. Raises `OSError` or
        `ValueError` if transformers cannot load the folder.
        """
        torch.manual_seed(seed)
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        body = AutoModel.from_pretrained(folder, local_files_only=True)
        tokenizer = _tokenizer_of(folder)
        names = getattr(config, "architectures", None) or [""]
        causal = names[0].endswith("CausalLM") or tokenizer.cls_token_id is None
        positions = int(getattr(config, "max_position_embeddings", MAX_TOKENS))
        return cls(
            body,
            tokenizer,
            Form(
                width,
                pool or ("last" if causal else "cls"),
                layers,
                False,
                min(MAX_TOKENS, positions),
            ),
        )

    def save(self, folder: Path) -> None:
        """Write the model as Hugging Face does, its head, and the form."""
        self._body.save_pretrained(folder / MODEL_FOLDER)
        if self._tokenizer is not None:
            self._tokenizer.save_pretrained(folder / MODEL_FOLDER)
        save_file(self._head.state_dict(), folder / HEAD_FILE)
        (folder / FORM_FILE).write_text(json.dumps(asdict(self.form)) + "\n")

    @classmethod
    def load(cls, folder: Path, width: int) -> "Encoder":
        """Return the saved model; raises `ValueError` if it has another width."""
        form = Form(**json.loads((folder / FORM_FILE).read_text()))
        if form.width != width:
            raise ValueError(f"the head must have {width} outputs, got {form.width}")
        extra = {"add_pooling_layer": False} if form.hashed else {}
        place = folder / MODEL_FOLDER
        body = AutoModel.from_pretrained(place, local_files_only=True, **extra)
        tokenizer = None if form.hashed else _tokenizer_of(place)
        model = cls(body, tokenizer, form)
        try:
            model._head.load_state_dict(load_file(folder / HEAD_FILE))
        except RuntimeError as error:
            raise ValueError(f"the head does not fit the model: {error}") from error
        return model

    # -- reading ---------------------------------------------------------------------------------

    def prepare(self, prompt: str) -> list[int]:
        """Return the last token ids of a prompt."""
        if self._tokenizer is None:
            return word_ids(prompt, self._body.config.vocab_size, self.form.tokens) or [0]
        cut = {"truncation": True, "max_length": self.form.tokens}
        return list(self._tokenizer(prompt[-MAX_CHARACTERS:], **cut)["input_ids"]) or [0]

    def start(self, outputs: Array) -> None:
        """Set the constants of the head's last layer, and make its weights small."""
        with torch.no_grad():
            self._head[-1].weight.mul_(START_SHARE)
            self._head[-1].bias.copy_(torch.from_numpy(outputs))

    def outputs(self, inputs: Sequence[list[int]]) -> Array:
        """Return the outputs (n, width), without dropout."""
        self._body.eval()
        with torch.no_grad():
            outputs: Array = self._forward(inputs).double().numpy()
        return outputs

    def learn(self, inputs: Sequence[list[int]], loss: Loss, rate: float) -> float:
        """Take a step of AdamW, and return the loss before it."""
        if self._optimizer is None:
            groups = [{"params": list(self._head.parameters())}]
            if not self._frozen:
                groups.append({"params": list(self._body.parameters())})
            self._optimizer = torch.optim.AdamW(groups, lr=rate, weight_decay=WEIGHT_DECAY)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self._body.train(not self._frozen)
        outputs = self._forward(inputs)
        lost, gradient = loss(outputs.detach().double().numpy())
        self._optimizer.zero_grad()
        outputs.backward(torch.from_numpy(np.ascontiguousarray(gradient)).float())
        used = [weight for group in self._optimizer.param_groups for weight in group["params"]]
        torch.nn.utils.clip_grad_norm_(used, MAX_GRADIENT)
        self._optimizer.step()
        return lost

    def freeze(self) -> None:
        """Learn only the head from now on."""
        self._frozen, self._optimizer = True, None
        self._body.requires_grad_(False)

    def state(self) -> Any:
        """Return a copy of all weights."""
        return [
            {name: weight.clone() for name, weight in part.state_dict().items()}
            for part in (self._body, self._head)
        ]

    def restore(self, state: Any) -> None:
        """Set all weights."""
        for part, weights in zip((self._body, self._head), state, strict=True):
            part.load_state_dict(weights)

    def _forward(self, inputs: Sequence[list[int]]) -> Any:
        longest = max(map(len, inputs))
        ids = torch.zeros((len(inputs), longest), dtype=torch.long)
        mask = torch.zeros((len(inputs), longest), dtype=torch.long)
        for row, tokens in enumerate(inputs):
            ids[row, : len(tokens)] = torch.tensor(tokens)
            mask[row, : len(tokens)] = 1
        hidden = self._body(input_ids=ids, attention_mask=mask).last_hidden_state
        return self._head(self._pooled(hidden, mask))

    def _pooled(self, hidden: Any, mask: Any) -> Any:
        if self.form.pool == "cls":
            return hidden[:, 0]
        if self.form.pool == "last":
            return hidden[torch.arange(len(hidden)), mask.sum(dim=1) - 1]
        weights = mask[:, :, None].to(hidden.dtype)
        return (hidden * weights).sum(dim=1) / weights.sum(dim=1)


def _tokenizer_of(folder: Path) -> Any:
    """Return the tokenizer of a folder, which keeps the end of a prompt that is too long."""
    return AutoTokenizer.from_pretrained(folder, local_files_only=True, truncation_side="left")
