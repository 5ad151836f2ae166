"""What clients are told of faults that others put into words: pydantic, vLLM, and Python itself.

Clients get the field and what is wrong with it. The log has the rest.
"""

import logging
import re

log = logging.getLogger(__name__)

_ENTRY = re.compile(r"'msg': (?P<quote>['\"])(?P<said>.*?)(?P=quote)(?=, '|\})", re.DOTALL)
"""What is wrong, in vLLM's list of pydantic's errors."""
_OF_PYDANTIC = re.compile(
    r"\d+ validation errors? for [^\n]*\n(?P<field>[^\n]*)\n\s+(?P<said>.*?)\s*\[type=", re.DOTALL
)
"""What pydantic's own error says of a field."""
INSIDES = re.compile(
    r"pydantic|Traceback|\bvllm\.|value_error|input_type=|input_value=|<class |\bat 0x|object at"
    r"|\w+\.py\b|<path>|'\w+'? object\b|unhashable type|unexpected keyword argument|Errno"
    r"|has no attribute|not iterable|not subscriptable|not callable|function-wrap"
    r"|^\w*(Error|Exception)\b(?=:|\()"
)
"""What no client understands: names of modules and classes, and what Python says of code."""
_PARAMETER = re.compile(r"\s*\(parameter=(\w+)(?:, value=.*)?\)", re.DOTALL)
"""How vLLM's own errors end that name a field."""
_MEMBER = re.compile(r"\.?\b(?:[\w-]+\[[^\]\d][^.]*\]|(?:str|int|float|bool|list|dict)$)")
"""What pydantic puts between the fields of a path, for each member of a union."""
_ESCAPED = re.compile(r"\\(['\"\\])")
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_OBJECT = re.compile(r"(?:a )?valid dictionary(?: or instance of \w+)?|an instance of \w+")
_UNTOLD = re.compile(r"unable to extract tag using discriminator [^ ]*")


def without_classes(said: str) -> str:
    """Return what pydantic says of a value, in JSON's words and without the names of our classes.

    It begins with a small letter, since a field stands before it.
    """
    said = said.removeprefix("Value error, ")
    said = _OBJECT.sub("an object", f"{said[:1].lower()}{said[1:]}")
    return _UNTOLD.sub("its type is missing, or is none that is known", said)


def plain(message: str, param: str | None = None) -> tuple[str, str | None]:
    """Return a message in plain words, and the path of the field that it is about.

    Of several faults it tells the first. Sentences that hold something of `INSIDES` are left out.
    """
    found = _ENTRY.search(message) if "validation error" in message else None
    path = _path(param)
    if (named := _PARAMETER.search(message)) is not None:
        path, message = path or named[1], _PARAMETER.sub("", message)
    if found is None and (found := _OF_PYDANTIC.search(message)) is not None:
        path = path or _path(found["field"])
    if found is not None:
        said = _ESCAPED.sub(r"\1", found["said"].strip())
        message = f"{path}: {without_classes(said)}" if path else said
    if INSIDES.search(message):
        log.info("vLLM's server refused a request: %s", message[:2000])
        clear = [each for each in _SENTENCE.split(message) if not INSIDES.search(each)]
        about = f"{path} has a value" if path else "It has a field"
        message = " ".join(clear).strip() or (
            f"The request cannot be answered. {about} that is not possible here: see the API's"
            " documentation."
        )
    return (message if message[-1:] in ".!?" else f"{message}."), path


def _path(param: str | None) -> str | None:
    """Return a path such as `messages[0].content`, without the body in front of it."""
    if not param:
        return None
    path = _MEMBER.sub("", param.removeprefix("body").lstrip("."))
    return re.sub(r"\.(\d+)(?=\.|$)", r"[\1]", path) or None
