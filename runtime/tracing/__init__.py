"""OpenTelemetry spans of runs, by the GenAI conventions; on if a receiver is configured.

Tracing wraps a run's engine session, observes the calls of its dispatcher and passes its events
on. OpenTelemetry is optional: while tracing is off, only `setup` is imported.
"""
