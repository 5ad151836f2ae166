"""The engine, with the chat template of another model over the same process."""

from caesura.scheduler.engine_options import EngineOptions
from caesura.scheduler.vllm.client.engine import VllmEngine
from tests.scheduler.real_templates import TEMPLATES


def over(template: str, engine: VllmEngine, thinks: bool = False) -> VllmEngine:
    """Return an engine whose chat template is one of the real ones, over the process of another.

    Thinking is text unless the model `thinks`: the bundled one never ends what it thinks by itself.
    """
    options = {"chat_template": str(TEMPLATES / f"{template}.jinja")}
    chosen = EngineOptions(
        served_name=engine.model,
        formats=engine.language.formats,
        thinking_as_text=not thinks,
    )
    return VllmEngine(engine.llm, chosen, server_options=options)
