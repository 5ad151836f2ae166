"""Studies: many simulated runs, each saved as it ends, their summary and their report.

`plan` defines what a study compares. `store` keeps runs in files, named by everything that
determines them. `pool` runs them in processes, and `conduct` joins these. `figures` are the
measures of a run, and `summary` combines several seeds. `tables` shows them, and `report` writes
what was found into a folder.
"""
