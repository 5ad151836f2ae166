"""Environment variables in the texts of a configuration, so that it need not contain secrets."""

import re
from collections.abc import Mapping

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


def with_variables(text: str, environment: Mapping[str, str]) -> str:
    """Return the text with `${NAME}` and `${NAME:-default}` filled in.

    An empty variable counts as unset. Raises ValueError for an unset variable without a default.
    """

    def value(match: re.Match[str]) -> str:
        found = environment.get(match[1]) or match[2]
        if found is None:
            raise ValueError(
                f"the environment variable {match[1]} is not set; "
                f"set it, or write ${{{match[1]}:-default}}"
            )
        return found

    return _VARIABLE.sub(value, text)
