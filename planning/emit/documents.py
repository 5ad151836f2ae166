"""YAML files from plain values, with comments above them."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from caesura.distribution import install
from caesura.planning.emit.engines import EmitError

MAX_LINE_CHARACTERS = 10_000


def yaml_file(comments: Iterable[str], *documents: Mapping[str, Any]) -> str:
    """Return the text of a YAML file; each of `comments` is a line of it.

    Raises `EmitError` where PyYAML, which comes with vLLM, is not installed.
    """
    try:
        import yaml
    except ImportError as error:
        raise EmitError(f"writing these files needs PyYAML: {install('planning')}") from error

    head = "".join(f"# {line}".rstrip() + "\n" for line in comments)
    parts = (
        # A value that stands in two places is written twice: some readers know no aliases.
        yaml.safe_dump(json.loads(json.dumps(each)), sort_keys=False, width=MAX_LINE_CHARACTERS)
        for each in documents
    )
    return head + "---\n".join(parts)
