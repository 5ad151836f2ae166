"""Connections of clients: how many there may be, and how long each may keep the server waiting."""
