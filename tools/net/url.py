"""The check of URLs for the tools' HTTP client."""

from urllib.parse import urlsplit

from yarl import URL

MAX_URL_CHARACTERS = 8_000


def checked_url(text: str) -> URL:
    """Return the URL; raises ValueError unless it is http or https with a host and no user name.

    A user name before the host is refused because it can disguise the real host. Keys belong in
    headers.
    """
    if len(text) > MAX_URL_CHARACTERS:
        raise ValueError(
            f"the URL has {len(text)} characters; at most {MAX_URL_CHARACTERS} are allowed"
        )
    if any(character <= " " or character in "\\\x7f" for character in text):
        raise ValueError("the URL contains a space, a backslash or a control character")
    try:
        url, host = URL(text), urlsplit(text).hostname
        port = url.port
    except (ValueError, UnicodeError):
        raise ValueError("the URL cannot be parsed") from None
    if url.scheme not in ("http", "https"):
        raise ValueError("the URL must begin with http:// or https://")
    if not host or not url.host or port == 0:
        raise ValueError("the URL has no host")
    if url.user is not None or url.password is not None:
        raise ValueError("the URL must not contain a user name or a password; use headers")
    return url
