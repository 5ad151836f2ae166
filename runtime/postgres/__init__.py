"""Stores in PostgreSQL, which several servers share. Needs the extra `postgres`."""

from caesura.runtime.postgres.database import Database, Unavailable

__all__ = ["Database", "Unavailable"]
