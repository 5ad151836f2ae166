"""The tools of a process as `caesura.toml` configures them."""
