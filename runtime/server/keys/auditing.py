"""What a server tells the audit log: of calls, and of what people were asked and have decided."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from caesura.runtime.audit import AuditLog
from caesura.runtime.events import ToolReturned
from caesura.tools.context import ToolRun
from caesura.tools.people import Pending, People


class Auditing:
    """Writes the audit log of one server; `names` are those of keys, by tenant."""

    def __init__(self, log: AuditLog, names: Mapping[str, str]) -> None:
        self._log = log
        self._names = names
        self._open: set[str] = set()
        """Items that were noted as asked and not settled yet."""

    def tool_returned(self, returned: ToolReturned, run: ToolRun) -> None:
        """Note a call that the server has run.

        The log of `run` knows the calls that an earlier process has run: these are marked, since
        that process may have noted them.
        """
        call, result = returned.call, returned.result
        earlier = run.log is not None and run.log.result_of(call) is not None
        self._log.add(
            "call",
            key=self._names.get(run.tenant, ""),
            response=run.scope.session_id,
            call=call.id,
            tool=call.name,
            **self._log.private("arguments", call.arguments),
            attempts=result.attempts,
            error=result.error,
            seconds=round(result.seconds, 3),
            **({"earlier": True} if earlier else {}),
        )

    async def follow(self, people: People) -> None:
        """Note each question and its end, until cancelled."""
        while True:
            async with people.watch() as items:
                async for item in items:
                    self._settled(item)
            await asyncio.sleep(0)  # the watch of one who fell behind ends; begin another

    def _settled(self, item: Pending) -> None:
        if item.state == "open" and item.id in self._open:
            return  # told again to a new watch
        (self._open.add if item.state == "open" else self._open.discard)(item.id)
        decision = {True: "approved", False: "denied", None: item.state}[item.approved]
        self._log.add(
            "asked" if item.state == "open" else decision,
            item=item.id,
            kind=item.kind,
            key=self._names.get(item.tenant, ""),
            response=item.session,
            tool=item.tool,
            **self._log.private("arguments", item.arguments),
            **({"who": item.who} if item.state != "open" else {}),
            **self._log.private("answer", item.answer or ""),
        )


async def ended(following: "asyncio.Task[None] | None") -> None:
    """Stop following, after what was told already."""
    if following is not None:
        await asyncio.sleep(0)
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following
