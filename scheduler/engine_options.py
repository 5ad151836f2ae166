"""What a user chooses for an engine: one object from the command line to vLLM's client."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """The options of one engine; what is not given is the default."""

    model: str | None = None
    """A Hugging Face id or a directory; None is the bundled model."""
    served_name: str | Sequence[str] | None = None
    """The model's name, or several; by default that of its directory or repository."""
    formats: Sequence[str] | None = None
    """The names of the model's call formats; None detects them in its chat template."""
    vllm_args: Sequence[str] = ()
    """Flags of `vllm serve`, which override Caesura's defaults."""
    serves: bool = False
    """Whether an HTTP server will run on the engine: flags may then be those of vLLM's server."""
    settings: Mapping[str, Any] | None = None
    """How the scheduler handles paused requests (`caesura.scheduler.settings.Settings`)."""
    connector: Mapping[str, Any] | None = None
    """The host memory for swapped blocks (`host_gib`) and the file for records (`records`)."""
    splice: bool = True
    """Whether a follow-up continues from the tokens of the answer that it holds unchanged."""
    thinking_as_text: bool = False
    """Whether what the model thinks is part of its answer instead of reasoning."""
    special_tokens_in_text: bool = False
    """Whether a special token that a user or a tool spells is that token."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names under which the model is served."""
        given = [self.served_name] if isinstance(self.served_name, str) else self.served_name
        return tuple(each for each in given or () if each) or (Path(self.model or "").name,)

    @property
    def name(self) -> str:
        """The first of its names, by which metrics and recordings call the model."""
        return self.names[0]
