"""Plans as files for deployments that run already."""
