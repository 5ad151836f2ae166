"""What a scheduler is equipped with, from vLLM's configuration."""

import logging
from collections.abc import Mapping
from typing import Any

from caesura.scheduler.settings import Settings
from caesura.scheduler.vllm.keeper import Keeper
from caesura.scheduler.vllm.swap.connector import CaesuraConnector

logger = logging.getLogger(__name__)

SETTINGS_KEY = "caesura"
"""In vLLM's `additional_config`: what `Settings` are read from."""


def make_keeper(scheduler: Any) -> Keeper:
    """Make the keeper of a scheduler's paused KV; raises `ValueError` for bad settings."""
    given = scheduler.vllm_config.additional_config
    given = given.get(SETTINGS_KEY, {}) if isinstance(given, Mapping) else {}
    if not isinstance(given, Mapping):
        raise ValueError(f"additional_config.{SETTINGS_KEY} must be an object")
    settings = Settings.from_mapping(given)
    connector = scheduler.connector
    planner, outbox = None, None
    if isinstance(connector, CaesuraConnector):
        planner = connector.planner
        if settings.records and scheduler.log_stats:
            outbox = connector.outbox
        # What cannot be loaded is recomputed: there is always a way back.
        scheduler.recompute_kv_load_failures = True
    return Keeper(scheduler, settings, planner, outbox)
