"""Workloads of the simulator: rows of sessions, each a function of a specification and a seed.

`names` makes one from its name. What sessions look like (`infercept`, `lamps`, `pastfuture`,
`ssjf`, `replay`, `records`) is drawn apart from when they arrive (`arrivals`, `traces`,
`servegen`).
"""
