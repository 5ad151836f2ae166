"""The training scripts import each other by their plain names, as `python training/x.py` does."""

import sys
from pathlib import Path

TRAINING = Path(__file__).parents[2] / "training"
sys.path.insert(0, str(TRAINING))
