"""Plans for people: tables, charts, records, and files for deployments that run already."""
