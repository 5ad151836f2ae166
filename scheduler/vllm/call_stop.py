"""Stops of requests at the token that completes a call or ends the turn.

A watch examines the request's tokens one by one. A turn that ends without a call finishes the
request at once. vLLM would keep the session and its blocks until the client closes its input.
"""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from vllm.v1.engine import EngineCoreOutputs
from vllm.v1.request import Request

from caesura.intercept.calls.events import ResumeReport
from caesura.intercept.calls.watch import Verdict, Watch
from caesura.scheduler.vllm.call_detection import CallDetector
from caesura.scheduler.vllm.engine_state.requests import (
    has_next_chunk,
    has_stopped,
    takes_chunks,
)
from caesura.scheduler.vllm.wire import REPORT_KEY


class CallStops:
    """Watches the requests of one scheduler, and keeps the reports of stops for the clients."""

    def __init__(self, detector: CallDetector) -> None:
        self._detector = detector
        self.watches: dict[str, Watch] = {}
        """The watches of the current turns, by request id."""
        self._verdicts: dict[str, str] = {}
        self._reports: dict[str, dict[str, Any]] = {}
        self.closing: set[str] = set()
        """Ids of ended sessions whose client has not closed its input yet."""

    def watch(self, request: Request) -> None:
        """Attach the watch that the request's parameters ask for, for a new turn."""
        self.watches.pop(request.request_id, None)
        watch = self._detector.watch_for(request)
        if watch is not None:
            self.watches[request.request_id] = watch

    def forget(self, request_id: str) -> None:
        """Remove the watch of a request that is about to be freed."""
        self.watches.pop(request_id, None)

    def is_goodbye(self, request_id: str) -> bool:
        """Return, once per session, whether a chunk only closes the input of an ended session."""
        if request_id not in self.closing:
            return False
        self.closing.discard(request_id)
        return True

    def aborted(self, request_ids: Iterable[str] | None) -> None:
        """Forget aborted requests (None: all requests), whose clients send no closing chunk."""
        if request_ids is None:
            self.closing.clear()
        else:
            self.closing.difference_update(request_ids)

    def cut(self, request: Request, new_tokens: list[int]) -> bool:
        """Remove the new tokens after the watch's stop; return whether there is a stop."""
        watch = self.watches.get(request.request_id)
        found = watch.first_stop(new_tokens) if watch is not None else None
        if found is None:
            return False
        del new_tokens[found[0] + 1 :]
        self._verdicts[request.request_id] = found[1].value
        return True

    def ends(self, request: Request, resume: ResumeReport | None) -> bool:
        """Return whether a stopped, watched request has ended, since its turn holds no call."""
        if request.request_id not in self.watches:
            return False
        report = self._report(request, resume)
        if report["paused"] or has_next_chunk(request):
            return False
        if takes_chunks(request):
            self.closing.add(request.request_id)
        return True

    def _report(self, request: Request, resume: ResumeReport | None) -> dict[str, Any]:
        """Return the report that the client receives with the turn's last token, and store it."""
        verdict = self._verdicts.pop(request.request_id, None)
        called = verdict == Verdict.CALL.value and has_stopped(request)
        report = {
            "paused": called and request.resumable,
            "verdict": verdict,
            "resume": asdict(resume) if resume is not None else None,
        }
        self._reports[request.request_id] = report
        return report

    def attach(self, outputs: dict[int, EngineCoreOutputs]) -> None:
        """Attach the reports to the last outputs of the turns."""
        self._verdicts.clear()
        if not self._reports:
            return
        for of_client in outputs.values():
            for output in of_client.outputs:
                if output.finish_reason is not None and output.request_id in self._reports:
                    report = {REPORT_KEY: self._reports[output.request_id]}
                    output.kv_transfer_params = {**(output.kv_transfer_params or {}), **report}
        self._reports.clear()
