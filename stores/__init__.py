"""What every store stands on: SQLite files, leases of their owners, and PostgreSQL.

A store of a room lies beside those who use it; here is how its file or database is opened.
"""
