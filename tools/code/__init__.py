"""Tools that run code: `python`, `shell` and `files`, in a sandbox that the three share."""
