"""Where a request comes from: its tenant, its session's name, and its parent's name."""

from collections.abc import Mapping
from typing import Any

from vllm.v1.request import Request

from caesura.scheduler.admission.programs import Origin
from caesura.scheduler.vllm.wire import PARENT_KEY, SESSION_KEY, TENANT_KEY

MAX_NAME_CHARACTERS = 256
"""Names are cut there, since a client chooses them."""


def origin_of(request: Request) -> Origin:
    """Return where a request comes from, as the API process or a client of vLLM's says."""
    params = request.sampling_params
    given: Mapping[str, Any] = (params.extra_args or {}) if params is not None else {}

    def text(key: str) -> str:
        value = given.get(key)
        return value[:MAX_NAME_CHARACTERS] if isinstance(value, str) else ""

    return Origin(text(TENANT_KEY), text(SESSION_KEY), text(PARENT_KEY))
