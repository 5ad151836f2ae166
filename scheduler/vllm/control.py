"""Messages to the scheduler: an ordinary `generate()` call that is answered and never enqueued.

vLLM has no public way to call a scheduler from the API process; a request whose extra arguments
hold a control message is one, with an answer.
"""

from collections.abc import Callable, Mapping
from typing import Any

from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs, FinishReason
from vllm.v1.request import Request

from caesura.scheduler.vllm.snapshot import snapshot
from caesura.scheduler.vllm.wire import CONTROL_KEY, REPORT_KEY


def samples(scheduler: Any) -> dict[str, Any]:
    """Hand out what has been measured of steps and copies since the last time."""
    keeper = scheduler._keeper
    steps = [list(step) for step in keeper.ledger.samples]
    keeper.ledger.samples.clear()
    copies = [] if keeper.planner is None else [list(copied) for copied in keeper.planner.copied]
    return {"steps": steps, "copies": copies, "cost": keeper.costs.model.to_wire()}


COMMANDS: dict[str, Callable[[Any], dict[str, Any]]] = {"state": snapshot, "samples": samples}


def attach_reports(
    outputs: dict[int, EngineCoreOutputs], reports: Mapping[str, dict[str, Any]]
) -> None:
    """Add to the last outputs of turns why they ended."""
    for of_client in outputs.values():
        for output in of_client.outputs:
            if output.finish_reason is not None and output.request_id in reports:
                report = {REPORT_KEY: reports[output.request_id]}
                output.kv_transfer_params = {**(output.kv_transfer_params or {}), **report}


class ControlPort:
    """Takes control messages out of the stream of requests and answers them with the next step."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._unanswered: list[tuple[int, str, Any]] = []

    @property
    def owes_answers(self) -> bool:
        """Whether a message waits for the next step."""
        return bool(self._unanswered)

    def take(self, request: Request) -> bool:
        """Keep the request if it is a control message."""
        params = request.sampling_params
        command = (params.extra_args or {}).get(CONTROL_KEY) if params is not None else None
        if command is None:
            return False
        self._unanswered.append((request.client_index, request.request_id, command))
        return True

    def answer(self, outputs: dict[int, EngineCoreOutputs]) -> None:
        """Add the answers to a step's outputs."""
        for client_index, request_id, command in self._unanswered:
            handler = COMMANDS.get(command) if isinstance(command, str) else None
            reply = (
                handler(self._scheduler)
                if handler is not None
                else {"error": f"unknown command {command!r}; known: {', '.join(COMMANDS)}"}
            )
            of_client = outputs.setdefault(client_index, EngineCoreOutputs())
            of_client.outputs.append(
                EngineCoreOutput(
                    request_id=request_id,
                    new_token_ids=[],
                    finish_reason=FinishReason.STOP,
                    kv_transfer_params={REPORT_KEY: reply},
                )
            )
        self._unanswered.clear()
