"""Compaction items: a summary of a conversation, as opaque text for the client."""

import base64
import json
from collections.abc import Mapping
from typing import Any

from caesura.runtime.server.http.errors import invalid
from caesura.runtime.server.responses.items import ids
from caesura.runtime.server.responses.items.given import Item
from caesura.scheduler.messages import Message

HEADING = "Summary of the conversation so far:"


def compaction(summary: str) -> Item:
    """Return the item that stands for a conversation. It is encoded and not encrypted."""
    text = json.dumps({"summary": summary}).encode()
    content = base64.urlsafe_b64encode(text).decode()
    return {"type": "compaction", "id": ids.new_id(ids.COMPACTION), "encrypted_content": content}


def summary_message(item: Mapping[str, Any]) -> Message:
    """Return the message that shows a compaction to the model.

    Raises `ApiError` 400 for content that this server did not make.
    """
    try:
        text = base64.b64decode(item["encrypted_content"].encode(), b"-_", validate=True)
        summary = json.loads(text)["summary"]
    except (ValueError, KeyError, TypeError):
        raise invalid(
            "input: the encrypted_content of a compaction is not of this server: send the item as "
            "POST /v1/responses/compact returned it.",
            "input",
        ) from None
    return {"role": "user", "content": f"{HEADING}\n{summary}"}
