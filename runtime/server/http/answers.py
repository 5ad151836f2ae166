"""Answers in JSON."""

import json
from typing import Any

from starlette.responses import JSONResponse


class JsonAnswer(JSONResponse):
    """A JSON answer in ASCII, since a model's text may hold characters that UTF-8 lacks."""

    def render(self, content: Any) -> bytes:
        """Return the body."""
        return json.dumps(content, separators=(",", ":")).encode()
