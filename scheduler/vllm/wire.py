"""The names under which Caesura's data travels through vLLM's own messages."""

WATCH_KEY = "caesura_watch"
"""In `SamplingParams.extra_args`: the `WatchPlan` of the turn that begins."""

CONTROL_KEY = "caesura_control"
"""In `SamplingParams.extra_args`: a message to the scheduler, answered and never enqueued."""

REPORT_KEY = "caesura"
"""In `RequestOutput.kv_transfer_params` of a turn's last output: why it stopped, how it resumed.

Only the last output of a turn carries one: vLLM merges unread outputs and keeps the later ones'
parameters, so that anything sent before the stop could be lost.
"""
