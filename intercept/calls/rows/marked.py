"""Rows of families that write calls as JSON between markers: an object, or a list of objects."""

import re

from caesura.intercept.calls.rows.form import KEY, CallFormat


def _marked(
    name: str,
    opens: str,
    closes: str,
    keys: tuple[str, ...] = ("arguments",),
    several: bool = False,
) -> CallFormat:
    """Return a row; `keys` may hold the arguments, and with `several` the JSON is a list."""
    call = f'{{"name": NAME, "{keys[0]}": {{...}}}}'
    return CallFormat(
        name,
        (opens,),
        closes,
        "turn",
        body="json",
        named=KEY.removeprefix(r"\{\s*"),
        telling=(
            re.escape(opens) + (r"\s*\[" if several else "")
            + rf'\s*{KEY}\s*,\s*"(?:{"|".join(keys)})"\s*:\s*\{{'
        ),
        shape=f"{opens}[{call}, ...]{closes}" if several else f"{opens}{call}{closes}",
        parser=name,
        guarded=True,
        keys=keys,
    )  # fmt: skip


LONGCAT = _marked("longcat", "<longcat_tool_call>", "</longcat_tool_call>")
HUNYUAN_A13B = _marked("hunyuan_a13b", "<tool_calls>", "</tool_calls>", several=True)
INTERNLM = _marked(
    "internlm", "<|action_start|><|plugin|>", "<|action_end|>", ("parameters", "arguments")
)
