"""HTTP for tools: bounded in time and size, and kept off private addresses.

A URL may come from a configuration, a redirect or a server's answer. Whatever it says, a
connection is made to public addresses only, unless the operator allowed more.
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
