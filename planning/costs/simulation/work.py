"""An application's requests as arrays, for one draw of their output lengths."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from caesura.planning.application.requests import Request
from caesura.planning.costs.lengths import prompt_of

Array = NDArray[np.float64]
Indices = NDArray[np.int64]


class Work:
    """The n requests of an application by number: tokens, models, and who needs whom.

    `model_of` (n,) are places in `models`. `prompts` (n,) hold the outputs that a request needs,
    and `outputs` (n,) are its output tokens. `sources` and `targets` (m,) are the needs: the target
    waits for the source. Raises `ValueError` for a request without a length.
    """

    def __init__(
        self, models: Sequence[str], requests: Sequence[Request], lengths: Mapping[str, int]
    ) -> None:
        missing = [request.key for request in requests if request.key not in lengths]
        if missing:
            raise ValueError(f"request {missing[0]} has no output length")
        self.models = tuple(models)
        self.keys = tuple(request.key for request in requests)
        self.number = {key: number for number, key in enumerate(self.keys)}
        place = {model: number for number, model in enumerate(models)}
        self.model_of: Indices = np.array([place[request.model] for request in requests], np.int64)
        self.prompts: Indices = np.array([prompt_of(each, lengths) for each in requests], np.int64)
        self.outputs: Indices = np.array([lengths[key] for key in self.keys], np.int64)
        pairs = [
            (self.number[need], self.number[request.key])
            for request in requests
            for need in request.needs
        ]
        edges = np.array(pairs, np.int64).reshape(-1, 2)
        self.sources, self.targets = edges[:, 0], edges[:, 1]
        self.prompt_list, self.output_list = self.prompts.tolist(), self.outputs.tolist()
        self._by_model = [np.flatnonzero(self.model_of == each) for each in range(len(models))]

    def __len__(self) -> int:
        return len(self.keys)

    def of(self, model: str) -> Indices:
        """Return the numbers of a model's requests."""
        return self._by_model[self.models.index(model)]
