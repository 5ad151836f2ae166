"""Which URLs the tools' HTTP client takes."""

from urllib.parse import urlsplit

from yarl import URL

MAX_URL_CHARACTERS = 8_000


def checked_url(text: str) -> URL:
    """The URL; raises ValueError unless it is http or https with a host and without a user name.

    A user name before the host is refused because it is how a URL is made to look like another
    host's; keys belong in headers.
    """
    if len(text) > MAX_URL_CHARACTERS:
        raise ValueError(f"the URL is longer than {MAX_URL_CHARACTERS} characters")
    if any(character <= " " or character in "\\\x7f" for character in text):
        raise ValueError("the URL holds a space, a backslash or a control character")
    try:
        url, host = URL(text), urlsplit(text).hostname
        port = url.port
    except (ValueError, UnicodeError):
        raise ValueError("the URL cannot be read") from None
    if url.scheme not in ("http", "https"):
        raise ValueError("the URL must begin with http:// or https://")
    if not host or not url.host or port == 0:
        raise ValueError("the URL names no host")
    if url.user is not None or url.password is not None:
        raise ValueError("the URL must not hold a user name or a password: use headers")
    return url
