"""Messages to the scheduler: an ordinary `generate()` call that is answered and never enqueued.

vLLM has no public way to call a scheduler from the API process; a request whose extra arguments
hold a control message is one, with an answer.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs, FinishReason
from vllm.v1.request import Request

from caesura.intercept.cost import CostModel
from caesura.scheduler.vllm.snapshot import snapshot
from caesura.scheduler.vllm.swap.regions import SwapUnavailable, block_bytes
from caesura.scheduler.vllm.trial import Trial, set_costs
from caesura.scheduler.vllm.wire import CONTROL_KEY, REPORT_KEY

logger = logging.getLogger(__name__)


def facts(scheduler: Any) -> dict[str, Any]:
    """Say what the KV cache and the link are like."""
    config, planner = scheduler.kv_cache_config, scheduler._keeper.planner
    workers = scheduler.vllm_config.parallel_config.world_size
    try:
        bytes_per_block = block_bytes(config)
    except SwapUnavailable:
        sizes = (tensor.size for tensor in config.kv_cache_tensors)
        bytes_per_block = max(sizes, default=0) // config.num_blocks
    return {
        "block_size": scheduler.block_size,
        "bytes_per_token": bytes_per_block * workers // scheduler.block_size,
        "blocks": config.num_blocks - 1,
        "host_blocks": planner.store.slots if planner is not None and planner.works else 0,
        "most_step_tokens": scheduler.max_num_scheduled_tokens,
        "most_running": scheduler.max_num_running_reqs,
        "most_context": scheduler.max_model_len,
    }


def samples(scheduler: Any) -> dict[str, Any]:
    """Hand out the steps that were measured since the last time, and the last copies.

    `copies_measured` counts all copies so far, of which `copies` are the last.
    """
    keeper = scheduler._keeper
    steps = [list(step) for step in keeper.ledger.samples]
    keeper.ledger.samples.clear()
    planner = keeper.planner
    return {
        "steps": steps,
        "copies": [] if planner is None else [list(copied) for copied in planner.copied],
        "copies_measured": 0 if planner is None else planner.copies_measured,
        "cost": keeper.costs.model.to_wire(),
    }


class Commands:
    """What a control message may ask for, by name.

    A message is a name, or an object whose `command` is one and whose other fields belong to it.
    """

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._trial = Trial(scheduler)
        self._handlers: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
            "state": lambda _: snapshot(scheduler),
            "facts": lambda _: facts(scheduler),
            "samples": lambda _: samples(scheduler),
            "calibrate": self._calibrate,
            "measure": self._measure,
        }

    def run(self, message: Any) -> dict[str, Any]:
        """Carry a message out; whatever is wrong with it is the answer, under `error`."""
        fields = message if isinstance(message, Mapping) else {"command": message}
        name = fields.get("command")
        handler = self._handlers.get(name) if isinstance(name, str) else None
        if handler is None:
            return {"error": f"unknown command {name!r}; known: {', '.join(self._handlers)}"}
        try:
            return handler(fields)
        except ValueError as error:
            return {"error": str(error)}
        except Exception as error:
            # An exception here would take the engine down, and everybody's requests with it.
            logger.exception("the command %r failed", name)
            return {"error": repr(error)}

    def _calibrate(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Go by the cost model under `cost` from now on."""
        cost = CostModel.from_wire(fields.get("cost"))  # type: ignore[arg-type]
        self._scheduler._recompute.measured = True
        return {"cost": set_costs(self._scheduler, cost).to_wire()}

    def _measure(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Begin or end to be measured, as `on` says."""
        on = fields.get("on")
        if on is True:
            self._trial.begin()
        elif on is False:
            self._trial.end()
        else:
            raise ValueError(f"measure: `on` must be true or false, not {on!r}")
        return {"on": on}


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
        self._commands = Commands(scheduler)
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
            reply = self._commands.run(command)
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
