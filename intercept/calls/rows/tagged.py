"""Rows of families that write a call as tags within tags, each argument in a tag of its own.

The section around a turn's calls is their opener and closer, since tags within it are plain text.
"""

from dataclasses import replace

from caesura.intercept.calls.rows.form import NAME, CallFormat

DSML = "｜DSML｜"
"""What stands at the begin of all tags of DeepSeek's since V3.2; one token of its vocabulary."""


def _invoked(name: str, section: str, tag: str = "", results: tuple[str, ...] = ()) -> CallFormat:
    """Return the row of a family that writes `<invoke name="NAME">` in a section of calls.

    `tag` is what stands before `invoke` and `parameter` in their tags.
    """
    return CallFormat(
        name,
        (f"<{section}>",),
        f"</{section}>",
        "turn",
        inner=(f"<{tag}invoke name=", f"</{tag}invoke>"),
        named=r"""invoke name=["']?([^\s<>"']{1,64})""",
        shape=(
            f'<{section}><{tag}invoke name="NAME"><{tag}parameter name="KEY">VALUE'
            f"</{tag}parameter></{tag}invoke></{section}>"
        ),
        parser=name,
        guarded=True,
        results=results,
    )


SEED_OSS = CallFormat(
    "seed_oss",
    ("<seed:tool_call>",),
    "</seed:tool_call>",
    "turn",
    inner=("<function=", "</function>"),
    named=rf"<function={NAME}>",
    shape=(
        "<seed:tool_call><function=NAME><parameter=KEY>VALUE</parameter></function>"
        "</seed:tool_call>"
    ),
    parser="seed_oss",
    guarded=True,
)
MINIMAX_M2 = _invoked("minimax_m2", "minimax:tool_call")
DEEPSEEK_V32 = _invoked("deepseek_v32", f"{DSML}function_calls", DSML, ("<function_results>",))
DEEPSEEK_V4 = _invoked("deepseek_v4", f"{DSML}tool_calls", DSML, ("<tool_result>",))
DEEPSEEK_V4_MISSPELT = replace(
    DEEPSEEK_V4, opens=(f"<{DSML}toolcalls>", f"<{DSML}tool>"), certain=False
)
"""The openers that vLLM's parser has seen DeepSeek V4 write by mistake."""
DEEPSEEK_V41 = _invoked("deepseek_v41", f"{DSML} calls", f"{DSML} ", ("<tool_result>",))
