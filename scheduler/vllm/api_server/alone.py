"""Which models' answers only vLLM's own server can read."""

from caesura.intercept.calls.formats import HARMONY
from caesura.scheduler.vllm.client.engine import VllmEngine


def parses_alone(engine: VllmEngine) -> bool:
    """Return whether only vLLM's server can read the answers of the engine's model.

    The format of calls is unknown here, or the way of thinking that its parser of reasoning reads.
    """
    splits = bool(engine.thinking) or HARMONY.name in engine.formats
    return not engine.formats or (bool(engine.reasoning_parser) and not splits)
