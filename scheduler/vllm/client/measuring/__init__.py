"""Measurement of an engine's step and copy costs with synthetic traffic."""

from caesura.scheduler.vllm.client.measuring.measure import adopt, measure

__all__ = ["adopt", "measure"]
