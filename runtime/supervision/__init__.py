"""Restarts a dead or hung engine, and says whether the server is alive and takes work."""
