"""The fields that requests of all APIs share, and their checks."""
