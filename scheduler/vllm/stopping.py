"""Stopping a request at the very token that completes a call, or that ends its turn.

Requests that ask for it are watched, token by token. A turn that ends without a call finishes the
request at once: vLLM would keep a session waiting for its client's goodbye, and its blocks with it.
"""

from collections.abc import Mapping
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request, RequestStatus

from caesura.intercept.events import ResumeReport
from caesura.intercept.trigger import Verdict, Watch
from caesura.scheduler.vllm.control import attach_reports
from caesura.scheduler.vllm.watching import Watcher

NOTHING: Mapping[str, Any] = MappingProxyType({})


class StoppingScheduler(Scheduler):
    """vLLM's scheduler with watches; a mixin for every scheduler derived from it."""

    # Class-level defaults, since vLLM's own tests build schedulers without calling __init__.
    _watches: Any = NOTHING
    _stops: Any = NOTHING
    _closing: Any = frozenset()
    _watcher: Watcher | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Take what vLLM's scheduler takes."""
        super().__init__(*args, **kwargs)
        self._watcher = Watcher(self.vllm_config)
        self._watches: dict[str, Watch] = {}
        self._stops: dict[str, dict[str, Any]] = {}
        # Sessions that ended here while the client has still to close its input.
        self._closing: set[str] = set()

    def add_request(self, request: Request) -> None:
        """Add a request, a session's next chunk, or its end."""
        request_id = request.request_id
        known = request_id in self.requests
        if not known and request_id in self._closing:
            self._closing.discard(request_id)
            return
        super().add_request(request)
        if not known:
            self._watch(request)

    def finish_requests(self, request_ids: Any, finished_status: RequestStatus) -> list[Request]:
        """Abort from whatever state."""
        if self._closing:
            if request_ids is None:
                self._closing.clear()
            else:
                ids = (request_ids,) if isinstance(request_ids, str) else tuple(request_ids)
                request_ids = ids
                self._closing.difference_update(ids)
        return super().finish_requests(request_ids, finished_status)

    def _watch(self, request: Request) -> None:
        """Attach the watch that the request asks for, for the turn that begins."""
        if self._watches:
            self._watches.pop(request.request_id, None)
        watch = self._watcher.watch_for(request) if self._watcher is not None else None
        if watch is not None:
            self._watches[request.request_id] = watch

    def _update_request_with_output(
        self, request: Request, new_token_ids: list[int], is_stale: bool = False
    ) -> tuple[list[int], bool]:
        """Append decoded tokens, up to the one at which the watch says to stop."""
        watch = self._watches.get(request.request_id)
        if watch is None:
            return super()._update_request_with_output(request, new_token_ids, is_stale=is_stale)
        found = watch.first_stop(new_token_ids)
        if found is not None:
            del new_token_ids[found[0] + 1 :]
        kept, stopped = super()._update_request_with_output(
            request, new_token_ids, is_stale=is_stale
        )
        if found is not None and not stopped:
            request.status = RequestStatus.FINISHED_STOPPED
            stopped = True
        if found is not None:
            self._stops[request.request_id] = {"verdict": found[1].value}
        return kept, stopped

    def _ends(self, request: Request, resume: ResumeReport | None) -> bool:
        """Whether a request that has stopped is over, since its turn holds no call."""
        request_id = request.request_id
        if request_id not in self._watches:
            return False
        stop = self._describe_stop(request, resume)
        if stop["paused"] or request.streaming_queue:
            return False
        if request.resumable:
            self._closing.add(request_id)
        return True

    def _describe_stop(self, request: Request, resume: ResumeReport | None) -> dict[str, Any]:
        """Write what the client is told with the last token of the turn."""
        request_id = request.request_id
        verdict = self._stops.get(request_id, NOTHING).get("verdict")
        called = verdict == Verdict.CALL.value and request.status == RequestStatus.FINISHED_STOPPED
        stop = {
            "paused": called and request.resumable,
            "verdict": verdict,
            "resume": asdict(resume) if resume is not None else None,
        }
        self._stops[request_id] = stop
        return stop

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: Any
    ) -> dict[int, Any]:
        """Process a step's tokens; the last outputs of turns carry their report."""
        outputs = super().update_from_output(scheduler_output, model_runner_output)
        if self._stops:
            attach_reports(outputs, self._stops)
            self._stops.clear()
        return outputs

    def _free_request(self, request: Request, delay_free_blocks: bool = False) -> Any:
        if self._watches:
            self._watches.pop(request.request_id, None)
        return super()._free_request(request, delay_free_blocks=delay_free_blocks)
