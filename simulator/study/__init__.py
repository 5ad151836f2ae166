"""Studies: many simulated runs, kept as they end, and what they say together.

`plan` is what is compared, `digest` names a run by all that determines it, `store` keeps runs,
`pool` makes them in processes of their own, `conduct` puts that together; `figures` are a run's
measures, `intervals` and `summary` what several seeds say about them.
"""
