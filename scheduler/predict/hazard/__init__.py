"""The hazard predictor: linear models of the facts of sessions, learned while they are served."""

from caesura.scheduler.predict.hazard.predictor import Hazard

__all__ = ["Hazard"]
