"""Reading of the response headers Content-Type and Retry-After."""

import math
import time
from email.utils import parsedate_to_datetime

MAX_RETRY_AFTER_SECONDS = 86_400.0


def media_type_of(content_type: str | None, accept: tuple[str, ...]) -> str | None:
    """Return the media type, in lower case without parameters, or None if it is not accepted.

    accept: "image/png", "image/*" or "+json"; empty accepts any.
    """
    media_type = (content_type or "application/octet-stream").partition(";")[0].strip().lower()
    if not accept or any(_fits(media_type, each) for each in accept):
        return media_type
    return None


def retry_after(text: str | None) -> float | None:
    """Return the seconds of a Retry-After header, a number or a date, at most a day.

    A date in the past gives 0; a header without either gives None.
    """
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(text).timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
    if math.isnan(seconds):
        return None
    return min(max(seconds, 0.0), MAX_RETRY_AFTER_SECONDS)


def _fits(media_type: str, wanted: str) -> bool:
    if wanted.startswith("+"):
        return media_type.endswith(wanted)
    if wanted.endswith("/*"):
        return media_type.startswith(wanted[:-1])
    return media_type == wanted
