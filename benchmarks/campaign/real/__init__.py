"""The server that people start, on the bundled model, under faults that real machines have."""
