"""The keys of Caesura's data in vLLM's own messages."""

WATCH_KEY = "caesura_watch"
"""Key in `SamplingParams.extra_args` of the `WatchPlan` of a new turn."""

REPLAYED_KEY = "caesura_replayed"
"""Key in `SamplingParams.extra_args` of how many of the prompt's last tokens belong to the turn.

The model sampled them in an engine that has died. The watch and the grammar read them first.
"""

WHOLE_TURN_KEY = "caesura_grammar_of_whole_turn"
"""Key in `SamplingParams.extra_args` of a grammar that also covers the turn's thinking."""

CONTROL_KEY = "caesura_control"
"""Key in `SamplingParams.extra_args` of a control message, which is never enqueued."""

CONTROL_SECRET_KEY = "caesura_control_secret"
"""Key in `SamplingParams.extra_args` of the secret, without which a control message is refused."""

REPORT_KEY = "caesura"
"""Key in `RequestOutput.kv_transfer_params` of the report on a turn: why it stopped, how resumed.

Only the last output of a turn carries one: vLLM merges unread outputs and keeps the later ones'
parameters, so that anything sent before the stop could be lost.
"""
