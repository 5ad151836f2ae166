"""HTTP for tools, with limits on time and size and without access to private addresses.

A URL may come from a configuration, a redirect or a server's answer. Connections go to public
addresses only, unless the operator allows others.
"""

from caesura.tools.net.client import USER_AGENT, HttpClient, Reply
from caesura.tools.net.errors import HttpError, HttpRefused, HttpUnavailable
from caesura.tools.net.url import checked_url

__all__ = [
    "USER_AGENT",
    "HttpClient",
    "HttpError",
    "HttpRefused",
    "HttpUnavailable",
    "Reply",
    "checked_url",
]
