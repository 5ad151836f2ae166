"""Studies: many simulated runs, each saved as it ends, and their summary.

`plan` defines what a study compares. `digest` names a run by everything that determines it.
`store` keeps runs, `pool` runs them in processes, and `conduct` joins these. `figures` are the
measures of a run; `intervals` and `summary` combine several seeds.
"""
