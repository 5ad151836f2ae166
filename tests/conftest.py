"""Tests leave the user's own files alone: calibrations, and what is known of tools' pauses."""

import os
import tempfile
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
OURS = tempfile.TemporaryDirectory(prefix="caesura-tests-")

# vLLM's cache stays where it is: without it every start of an engine takes seconds longer.
os.environ.setdefault("VLLM_CACHE_ROOT", str(CACHE / "vllm"))
os.environ["XDG_CACHE_HOME"] = str(Path(OURS.name, "cache"))
os.environ["XDG_STATE_HOME"] = str(Path(OURS.name, "state"))
os.environ["XDG_DATA_HOME"] = str(Path(OURS.name, "data"))
os.environ["XDG_CONFIG_HOME"] = str(Path(OURS.name, "config"))
