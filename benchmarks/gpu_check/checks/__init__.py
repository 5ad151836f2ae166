"""The checks, in the order in which they run: what must be right first, then what it costs."""

from dataclasses import dataclass

VARIANTS = ("default", "eager", "stepwise", "speculation", "windows", "recurrent")
"""The engines whose sessions must be exact, whatever the model's family."""
FAMILIES = (
    "Mistral with a window",
    "gpt-oss",
    "Llama 4",
    "Qwen 3.5",
    "Granite 4",
    "Nemotron-H",
    "Falcon-H1",
    "LFM2",
    "DeepSeek V3",
    "DeepSeek V3.2",
)
"""Of `tests.engine.families`, those that no variant has."""


@dataclass(frozen=True)
class Check:
    """One check: the module `NAME.py` beside this one has `async def check(scale, turn)`.

    A check with `parts` takes the part's name as `part`; each part has a process of its own.
    """

    title: str
    share: float
    """Its part of the time in which checks measure one by one."""
    parts: tuple[str, ...] = ("",)
    timed: bool = True
    """Whether nothing else may run while it measures. The others run while engines start."""
    batch: int = 0
    """On a device the checks of a batch start side by side, so they must fit in its memory."""


CHECKS = {
    "machine": Check("Machine and link", 1),
    "exactness": Check("A pause changes no token", 7, VARIANTS, timed=False, batch=1),
    "families": Check("A pause changes no token, by family", 5, FAMILIES, timed=False, batch=1),
    "sleeping": Check("Sleep and wake", 2, timed=False, batch=1),
    "first_token": Check("Time to first token at low load", 3, batch=1),
    "copies": Check("Copies beside compute", 4, batch=1),
    "long_sessions": Check("Sessions beyond 8,192 tokens", 4, batch=2),
    "follow_ups": Check("Coding agents' follow-ups, against vLLM's server", 5, batch=2),
    "load": Check("Handling under load, against stock vLLM", 9, batch=2),
}
