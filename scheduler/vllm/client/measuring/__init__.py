"""Measuring what an engine's steps and copies cost, by synthetic traffic through it."""

from caesura.scheduler.vllm.client.measuring.measure import adopt, measure

__all__ = ["adopt", "measure"]
