"""Studies: many simulated runs, each saved as it ends, and their summary.

`plan` defines what a study compares. `store` keeps runs in files, named by everything that
determines them. `pool` runs them in processes, and `conduct` joins these. `figures` are the
measures of a run, and `summary` combines several seeds.
"""
