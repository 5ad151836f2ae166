"""The options of `caesura serve` for its audit log."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from caesura.runtime.audit import AuditLog
from caesura.runtime.errors import UsageError
from caesura.scheduler.paths import audit_path

AUDIT = "Audit"
"""A panel of `--help`."""


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """Where calls and decisions are noted, and with how much of them."""

    audit: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False,
            metavar="FILE",
            help="Note calls of tools, questions to people and their decisions in this file, as"
            " JSON lines. Default, where there are tools: in the user's state directory.",
            rich_help_panel=AUDIT,
        ),
    ] = None
    audit_content: Annotated[
        bool,
        typer.Option(
            "--audit-content",
            help="Note arguments and answers too, instead of their digests.",
            rich_help_panel=AUDIT,
        ),
    ] = False
    no_audit: Annotated[
        bool, typer.Option("--no-audit", help="Keep no audit log.", rich_help_panel=AUDIT)
    ] = False

    def log(self, has_tools: bool) -> AuditLog | None:
        """Return the log, or None if none is wanted. Raises `UsageError`."""
        if self.no_audit:
            if self.audit is not None:
                raise UsageError(f"--audit {self.audit} and --no-audit exclude each other")
            return None
        if self.audit is None and not has_tools:
            return None
        return AuditLog(self.audit or audit_path(), content=self.audit_content)
