"""What every request meets before and after its handler: access, limits, errors, counting."""
