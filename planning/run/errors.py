"""The errors of a run: what a user can act on, each in one sentence."""

from caesura.scheduler.errors import CaesuraError, UsageError


class RunError(CaesuraError):
    """A run can't go on. What it has written stays, and the same command continues it."""


class OutputError(RunError):
    """The files of results or events can't be written."""


class ResumeError(UsageError):
    """The files of a former run don't belong to this run, or another process holds them."""
