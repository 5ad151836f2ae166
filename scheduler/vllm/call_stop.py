"""Stopping a request at the very token that completes a call, or that ends its turn.

Requests that ask for it are watched, token by token. A turn that ends without a call finishes the
request at once: vLLM would keep a session waiting for its client's goodbye, and its blocks with it.
"""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from vllm.v1.engine import EngineCoreOutputs
from vllm.v1.request import Request

from caesura.intercept.calls.events import ResumeReport
from caesura.intercept.calls.watch import Verdict, Watch
from caesura.scheduler.vllm.call_detection import CallDetector
from caesura.scheduler.vllm.engine_state.requests import has_next_chunk, has_stopped
from caesura.scheduler.vllm.wire import REPORT_KEY


class CallStops:
    """Watches the requests of one scheduler, and keeps what their clients are told of a stop."""

    def __init__(self, detector: CallDetector) -> None:
        self._detector = detector
        self.watches: dict[str, Watch] = {}
        """The watches of the turns under way, by request."""
        self._verdicts: dict[str, str] = {}
        self._reports: dict[str, dict[str, Any]] = {}
        self.closing: set[str] = set()
        """Sessions that ended here while the client has still to close its input."""

    def watch(self, request: Request) -> None:
        """Attach the watch that the request asks for, for the turn that begins."""
        self.watches.pop(request.request_id, None)
        watch = self._detector.watch_for(request)
        if watch is not None:
            self.watches[request.request_id] = watch

    def forget(self, request_id: str) -> None:
        """A request is about to be freed."""
        self.watches.pop(request_id, None)

    def is_goodbye(self, request_id: str) -> bool:
        """Return whether a chunk only closes the input of a session that has ended, once."""
        if request_id not in self.closing:
            return False
        self.closing.discard(request_id)
        return True

    def aborted(self, request_ids: Iterable[str] | None) -> None:
        """These are aborted (None: all requests): no goodbye comes for them."""
        if request_ids is None:
            self.closing.clear()
        else:
            self.closing.difference_update(request_ids)

    def cut(self, request: Request, new_tokens: list[int]) -> bool:
        """Delete what was decoded behind the token at which the watch says to stop, if it does."""
        watch = self.watches.get(request.request_id)
        found = watch.first_stop(new_tokens) if watch is not None else None
        if found is None:
            return False
        del new_tokens[found[0] + 1 :]
        self._verdicts[request.request_id] = found[1].value
        return True

    def ends(self, request: Request, resume: ResumeReport | None) -> bool:
        """Return whether a watched request that has stopped is over: its turn holds no call."""
        if request.request_id not in self.watches:
            return False
        report = self._report(request, resume)
        if report["paused"] or has_next_chunk(request):
            return False
        if request.resumable:
            self.closing.add(request.request_id)
        return True

    def _report(self, request: Request, resume: ResumeReport | None) -> dict[str, Any]:
        """Write what the client is told with the last token of the turn."""
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
        """Add to the last outputs of turns why they ended."""
        self._verdicts.clear()
        if not self._reports:
            return
        for of_client in outputs.values():
            for output in of_client.outputs:
                if output.finish_reason is not None and output.request_id in self._reports:
                    report = {REPORT_KEY: self._reports[output.request_id]}
                    output.kv_transfer_params = {**(output.kv_transfer_params or {}), **report}
        self._reports.clear()
