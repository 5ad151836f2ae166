"""Many runs: kept in files, filled in pieces, searched for the knee, and written as tables."""
