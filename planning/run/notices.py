"""What happens in a run that its conductor decides about."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelFinished:
    """All requests of a model are done."""

    model: str


@dataclass(frozen=True, slots=True)
class ReplicaLost:
    """An engine ended or answers no more. Its requests wait again."""

    replica: str
    reason: str


@dataclass(frozen=True, slots=True)
class LoadFailed:
    """An engine could not be loaded."""

    replica: str
    reason: str


@dataclass(frozen=True, slots=True)
class Settled:
    """No request is in flight."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The run can't go on."""

    error: BaseException


Notice = ModelFinished | ReplicaLost | LoadFailed | Settled | Failed
