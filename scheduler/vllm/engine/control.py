"""Control messages to the scheduler, sent as `generate()` calls that are never enqueued.

vLLM has no public way to call a scheduler from the API process. So a request carries the message
in its extra arguments, and its output carries the answer.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import msgspec
from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs, FinishReason
from vllm.v1.kv_cache_interface import KVCacheConfig
from vllm.v1.request import Request

from caesura.intercept.kv.costs import PRIOR, CostModel, CostTracker
from caesura.intercept.kv.handling import make_handling
from caesura.intercept.kv.states import State
from caesura.intercept.kv.views import Handling
from caesura.intercept.pause_hints import MAX_SECONDS
from caesura.scheduler.programs import Origin
from caesura.scheduler.vllm.engine.calls import CallStops
from caesura.scheduler.vllm.engine.kv.manager import PausedKVManager
from caesura.scheduler.vllm.engine.kv.paused_kvs import PausedKVs
from caesura.scheduler.vllm.engine.pauses import Pauses
from caesura.scheduler.vllm.engine.port import EngineState
from caesura.scheduler.vllm.engine.port.blocks import ids_of, real_ids
from caesura.scheduler.vllm.engine.sessions.recorder import Recorder
from caesura.scheduler.vllm.engine.sessions.served import Clock, ServedRequests
from caesura.scheduler.vllm.engine.sessions.sessions import Sessions
from caesura.scheduler.vllm.engine.steps import Chunking, StepCosts
from caesura.scheduler.vllm.engine.swap.planner import SwapPlanner
from caesura.scheduler.vllm.engine.swap.regions import SwapUnavailable, block_bytes
from caesura.scheduler.vllm.wire import CONTROL_KEY, CONTROL_SECRET_KEY, REPORT_KEY, is_secret

logger = logging.getLogger(__name__)


NOT_OURS = "control messages need the secret of the process that started the engine"


def with_link(cost: CostModel, planner: SwapPlanner | None) -> tuple[CostModel, bool]:
    """Return the cost model with a guess for a link that was never measured, and if it has one.

    With a rate of zero no block would ever be swapped, so the rate could never be measured.
    """
    if planner is None or (cost.out_rate and cost.in_rate):
        return cost, cost is PRIOR
    return replace(cost, out_rate=PRIOR.out_rate, in_rate=PRIOR.in_rate), True


@dataclass(frozen=True, slots=True)
class EngineControl:
    """What control messages ask about: the collaborators of one scheduler."""

    port: EngineState
    manager: PausedKVManager
    pauses: Pauses
    stops: CallStops
    served: ServedRequests
    sessions: Sessions
    recorder: Recorder
    chunking: Chunking
    step_costs: StepCosts
    costs: CostTracker
    clock: Clock

    @property
    def paused_kvs(self) -> PausedKVs:
        """Return all paused KV."""
        return self.manager.paused_kvs

    @property
    def planner(self) -> SwapPlanner | None:
        """Return what plans copies, or None without a link to the host."""
        return self.manager.planner

    def snapshot(self) -> dict[str, Any]:
        """Count requests by state and blocks by owner.

        With a predictor of lengths, `prompts` counts what it was asked and what came of that.
        `lost_blocks` have no owner although the pool counts them as used; it is 0 unless there is a
        bug or another KV connector holds blocks of finished requests.
        """
        pool, planner = self.port.blocks, self.planner
        prompts = self.sessions.prompts
        pauses = [one.pause for one in self.served.paused.values() if one.pause is not None]
        owned = self._blocks_by_owner()
        running = len(self.port.running())
        return {
            "running": running,
            "waiting": len(self.port.request_ids()) - running - len(pauses),
            "paused_held": sum(p.held for p in pauses if p.state is State.PAUSED),
            "paused_dropped": sum(not p.held for p in pauses if p.state is State.PAUSED),
            "resuming": sum(p.state is State.RESUMING for p in pauses),
            "retained": len(self.paused_kvs) - len(pauses),
            "closing": len(self.stops.closing),
            "watched": sum(one.watch is not None for one in self.served.values()),
            "handling": self.manager.handling.name,
            "blocks_total": pool.total,
            "blocks_free": pool.free(),
            **{f"blocks_{owner}": len(blocks) for owner, blocks in owned.items()},
            "host_blocks": 0 if planner is None else planner.store.slots,
            "host_blocks_used": 0 if planner is None else planner.store.used,
            "lost_blocks": pool.total - pool.free() - len(set().union(*owned.values())),
            **({"prompts": asdict(prompts.counts)} if prompts is not None else {}),
        }

    def _blocks_by_owner(self) -> dict[str, set[int]]:
        owned: dict[str, set[int]] = {
            owner: set() for owner in ("running", "paused", "waiting", "copying", "fenced")
        }
        running = {request.request_id for request in self.port.running()}
        for request_id in self.port.request_ids():
            owner = "running" if request_id in running else "waiting"
            owner = "paused" if request_id in self.served.paused else owner
            owned[owner] |= real_ids(self.port.blocks_of(request_id))
        for kv in self.paused_kvs.values():
            owned["paused"] |= real_ids(self.paused_kvs.blocks.apart(kv))
        if self.planner is not None:
            owned["copying"].update(ids_of(self.planner.blocks_in_flight()))
        owned["fenced"] |= real_ids(self.port.blocks_given_back())
        return owned

    def facts(self, kv_cache_config: KVCacheConfig, workers: int) -> dict[str, Any]:
        """Return the sizes of the KV cache of all `workers`, of the host and of a step."""
        port, planner = self.port, self.planner
        try:
            bytes_per_block = block_bytes(kv_cache_config)
        except SwapUnavailable:
            sizes = (tensor.size for tensor in kv_cache_config.kv_cache_tensors)
            bytes_per_block = max(sizes, default=0) // kv_cache_config.num_blocks
        bytes_per_engine = bytes_per_block * workers
        if planner is not None:
            bytes_per_engine = planner.engine_block_bytes
        size, blocks = port.attention_tokens, kv_cache_config.num_blocks - 1
        return {
            "block_size": size,
            "bytes_per_token": int(bytes_per_engine // port.groups.tokens(1, size)),
            "blocks": blocks,
            "capacity_tokens": int(port.groups.tokens(blocks, size)),
            "groups": asdict(port.groups),
            "block_bytes": port.sizes.block_bytes,
            "host_blocks": planner.store.slots if planner is not None and planner.works else 0,
            "most_step_tokens": port.step_tokens,
            "most_running": port.max_running,
            "most_context": port.max_context_tokens,
        }

    def samples(self) -> dict[str, Any]:
        """Return and clear the steps measured since the last call; return the last copies too.

        `copies_measured` is the number of all copies so far; `copies` are the last of them.
        """
        steps = [list(step) for step in self.step_costs.samples]
        self.step_costs.samples.clear()
        planner = self.planner
        return {
            "steps": steps,
            "copies": [] if planner is None else [list(copied) for copied in planner.copied],
            "copies_measured": 0 if planner is None else planner.copies_measured,
            "cost": self.costs.model.to_wire(),
        }

    def go_by(self, cost: CostModel) -> CostModel:
        """Install a measured cost model, which the scheduler corrects from now on; return it."""
        cost, guessed = with_link(cost, self.planner)
        self.chunking.measured = True
        # The tracker is changed in place, since all policies hold a reference to it.
        self.costs.restart(cost, guessed)
        return cost


class CalibrationMode:
    """Switches a scheduler to measuring and back.

    While measuring, every pause is swapped, and steps have vLLM's full size. The scheduler does not
    learn from the synthetic traffic and does not record it.
    """

    def __init__(self, engine: EngineControl) -> None:
        self._engine = engine
        self._before: tuple[Handling, bool] | None = None

    def begin(self) -> None:
        """Start measuring on an idle scheduler; raise `ValueError` while requests are running."""
        self._demand_rest()
        engine = self._engine
        if self._before is None:
            engine.manager.drop_all(engine.clock())  # KV retained for follow-ups takes up memory
            engine.recorder.suspend()
            self._before = (engine.manager.handling, engine.chunking.measured)
        engine.chunking.measured = False
        engine.sessions.learns = False
        engine.manager.handling = make_handling("swap")

    def end(self) -> None:
        """Restore the previous state; raise `ValueError` while requests are running."""
        self._demand_rest()
        if self._before is not None:
            engine = self._engine
            engine.manager.handling, engine.chunking.measured = self._before
            self._before = None
            engine.sessions.learns = True
            engine.recorder.resume()

    def _demand_rest(self) -> None:
        if self._engine.port.request_ids() or self._engine.step_costs.in_flight:
            raise ValueError("requests are running: measure the engine before it serves")


class Commands:
    """Carries out control messages by the name of their command.

    A message is a command's name, or an object with the name as `command` and its arguments.
    """

    def __init__(self, engine: EngineControl, kv_cache_config: KVCacheConfig, workers: int) -> None:
        """Create it; `workers` workers share the KV cache."""
        self._engine = engine
        self._trial = CalibrationMode(engine)
        self._handlers: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
            "state": lambda _: engine.snapshot(),
            "facts": lambda _: engine.facts(kv_cache_config, workers),
            "samples": lambda _: engine.samples(),
            "calibrate": self._calibrate,
            "measure": self._measure,
            "expect_pause": self._expect_pause,
            "cut": self._cut,
            "end_session": self._end_session,
        }

    def run(self, message: Any) -> dict[str, Any]:
        """Return the answer to a message; the key `error` holds the error of an invalid one."""
        fields = message if isinstance(message, Mapping) else {"command": message}
        name = fields.get("command")
        handler = self._handlers.get(name) if isinstance(name, str) else None
        if handler is None:
            known = ", ".join(self._handlers)
            return {"error": f"unknown command {name!r:.100}; known: {known}"}
        try:
            return sendable(handler(fields))
        except ValueError as error:
            return {"error": str(error)}
        except Exception as error:
            # An exception here would stop the engine, with the requests of all clients.
            logger.exception("the command %r failed", name)
            return {"error": repr(error)}

    def _calibrate(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Install the cost model in the field `cost`."""
        cost = CostModel.from_wire(fields.get("cost"))  # type: ignore[arg-type]
        return {"cost": self._engine.go_by(cost).to_wire()}

    def _expect_pause(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Take a forecast that the pause of `request` lasts `seconds` more."""
        request_id, seconds = fields.get("request"), fields.get("seconds")
        if not isinstance(request_id, str) or not request_id:
            raise ValueError(f"expect_pause: `request` must be an id, got {request_id!r:.100}")
        if not isinstance(seconds, int | float) or isinstance(seconds, bool):
            raise ValueError(f"expect_pause: `seconds` must be a number, got {seconds!r:.100}")
        if isinstance(seconds, int):  # it may be too large for a float
            seconds = max(-1, min(seconds, int(MAX_SECONDS)))
        return {"taken": self._engine.pauses.expect(request_id, float(seconds))}

    def _cut(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Cut the turn of `request` at the next safe place within `tokens` tokens of text."""
        request_id, tokens = fields.get("request"), fields.get("tokens")
        if not isinstance(request_id, str) or not request_id:
            raise ValueError(f"cut: `request` must be an id, got {request_id!r:.100}")
        if type(tokens) is not int or tokens < 1:
            raise ValueError(f"cut: `tokens` must be a whole number from 1, got {tokens!r:.100}")
        return {"taken": self._engine.stops.cut_soon(request_id, tokens)}

    def _end_session(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Free what is kept for the `session` of a `tenant`, and for those that it started."""
        tenant, session = fields.get("tenant"), fields.get("session")
        if not isinstance(tenant, str):
            raise ValueError(f"end_session: `tenant` must be a text, got {tenant!r:.100}")
        if not isinstance(session, str) or not session:
            raise ValueError(f"end_session: `session` must be a name, got {session!r:.100}")
        engine = self._engine
        return {"ended": engine.manager.end_session(Origin(tenant, session), engine.clock())}

    def _measure(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Start or stop measuring, by the field `on`."""
        on = fields.get("on")
        if on is True:
            self._trial.begin()
        elif on is False:
            self._trial.end()
        else:
            raise ValueError(f"measure: `on` must be true or false, got {on!r:.100}")
        return {"on": on}


def sendable(reply: dict[str, Any]) -> dict[str, Any]:
    """Return a reply; raise `ValueError` if it cannot be sent to the API process.

    What cannot be sent would end the thread that sends the outputs of all requests.
    """
    try:
        msgspec.msgpack.encode(reply)
    except (TypeError, OverflowError, RecursionError, ValueError) as error:
        raise ValueError(f"the reply cannot be sent: {error!r:.200}") from error
    return reply


class ControlPort:
    """Takes control messages out of the stream of requests, and answers them after a step.

    A message without the secret is answered with an error and does nothing.
    """

    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self._unanswered: list[tuple[int, str, Any, bool]] = []

    @property
    def owes_answers(self) -> bool:
        """Whether a message waits for the next step."""
        return bool(self._unanswered)

    def take(self, request: Request) -> bool:
        """Store the request if it is a control message, and return whether it is one."""
        params = request.sampling_params
        given = (params.extra_args or {}) if params is not None else {}
        command = given.get(CONTROL_KEY)
        if command is None:
            return False
        ours = is_secret(given.get(CONTROL_SECRET_KEY))
        self._unanswered.append((request.client_index, request.request_id, command, ours))
        return True

    def answer(self, outputs: dict[int, EngineCoreOutputs]) -> None:
        """Add the answers of stored messages to a step's outputs."""
        for client_index, request_id, command, ours in self._unanswered:
            reply = self._commands.run(command) if ours else {"error": NOT_OURS}
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
