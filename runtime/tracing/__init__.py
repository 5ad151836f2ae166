"""OpenTelemetry spans of runs, by the GenAI conventions; on when a receiver is configured.

A run is watched from outside: its engine session is wrapped, its dispatcher tells of calls, its
events pass by. OpenTelemetry is optional: only `setup` is imported where tracing is off.
"""
