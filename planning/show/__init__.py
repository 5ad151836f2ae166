"""Plans and runs, shown."""
