"""How large the checks are: on a device, and on a CPU, where only their code is tested."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """The sizes of all checks. Lengths are in tokens, pools in blocks of 32 tokens."""

    name: str
    on_device: bool
    """Whether engines compile, capture CUDA graphs and schedule asynchronously, as by default."""
    exact_model: str
    exact_sessions: int
    exact_pool: int
    """Blocks for all sessions of the check of exactness; too few, so that KV is swapped."""
    model: str
    """The model whose times count."""
    copies_context: int
    copies_decoding: int
    """Requests that decode while KV is copied."""
    long_context: int
    long_turn: int
    load_context: int
    load_pool: int
    load_systems: tuple[str, ...]
    token_scale: float
    pause_scale: float
    window_seconds: float
    agents: int
    """Coding agents at once. Their words and pauses are an agent's; a word is 1 to 4 tokens."""
    agent_turns: int
    agent_words: int
    agent_result_words: int
    agent_pause_seconds: float
    agent_context: int
    agent_host_gib: float
    first_token_prompt: int
    pairs: int


DEVICE = Scale(
    name="device",
    on_device=True,
    exact_model="60m-wide",
    exact_sessions=12,
    exact_pool=160,
    model="8b",
    copies_context=8192,
    copies_decoding=16,
    long_context=20_480,
    long_turn=1024,
    load_context=8192,
    load_pool=3000,
    load_systems=("stock", "stock-offload", "caesura"),
    token_scale=1.0,
    pause_scale=0.35,
    window_seconds=30.0,
    agents=16,
    agent_turns=10,
    agent_words=2500,
    agent_result_words=300,
    agent_pause_seconds=1.0,
    agent_context=20_480,
    agent_host_gib=16,
    first_token_prompt=1024,
    pairs=20,
)

SMALL = Scale(
    name="small",
    on_device=False,
    exact_model="2m-wide",
    exact_sessions=6,
    exact_pool=72,
    model="2m",
    copies_context=512,
    copies_decoding=2,
    long_context=1024,
    long_turn=256,
    load_context=2048,
    load_pool=128,
    load_systems=("stock", "caesura"),
    token_scale=0.1,
    pause_scale=0.05,
    window_seconds=4.0,
    agents=3,
    agent_turns=4,
    agent_words=300,
    agent_result_words=40,
    agent_pause_seconds=0.1,
    agent_context=2048,
    agent_host_gib=1,
    first_token_prompt=64,
    pairs=2,
)
SCALES = {scale.name: scale for scale in (DEVICE, SMALL)}
