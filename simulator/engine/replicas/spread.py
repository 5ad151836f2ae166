"""How unevenly requests are spread over replicas, over time."""

from collections.abc import Sequence
from math import sqrt


class Spreading:
    """The mean over time of the coefficient of variation of the replicas' requests.

    0: all replicas have the same number of requests at every moment. Moments without a request do
    not count.
    """

    def __init__(self) -> None:
        self._seconds = 0.0
        self._sum = 0.0

    def look(self, requests: Sequence[int], seconds: float) -> None:
        """Count `requests` by replica for so many seconds."""
        total = sum(requests)
        if not total:
            return
        mean = total / len(requests)
        variance = sum((one - mean) ** 2 for one in requests) / len(requests)
        self._seconds += seconds
        self._sum += seconds * sqrt(variance) / mean

    @property
    def variation(self) -> float:
        """Return the mean coefficient of variation; 0.0 if there was no request."""
        return self._sum / self._seconds if self._seconds else 0.0
