"""The interface to vLLM's scheduler, its KV cache manager and its queues."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.request import Request

from caesura.intercept.kv.views import Groups
from caesura.scheduler.vllm.engine.port.blocks import (
    Block,
    Blocks,
    BlockSizes,
    Place,
    PrefixCache,
)
from caesura.scheduler.vllm.engine.port.layout import Layout

Queue = Iterable[Request]
"""One of vLLM's waiting queues, in the order in which vLLM tries it."""

LoadsOverSteps = Callable[[Request, int], bool]
"""Returns whether a request with that number of cached tokens would wait for KV from the host."""


@dataclass(slots=True)
class StepWork:
    """The tokens that the requests of a step compute.

    `decode_tokens` are those of requests past their prompt. `context_tokens` is the sum of all the
    requests' computed tokens at the end of the step. `partial_blocks` is the number of their last
    blocks, one in each group, that are not full then. `prefills` are the other requests: id, first
    token of the chunk, and its length.
    """

    decode_tokens: int = 0
    context_tokens: int = 0
    partial_blocks: int = 0
    prefills: Sequence[tuple[str, int, int]] = ()


OF_STEPS = "several steps had been scheduled behind the stop"
OF_CHUNK = "the next chunk takes the place of the last token"


@dataclass(frozen=True, slots=True)
class Stop:
    """The KV of a session at its stop.

    `preempted`: it has lost its blocks meanwhile. Otherwise all tokens but the last are computed.
    A step in flight may compute the last one too, and more. Attention would write the same KV to
    the same place again. A recurrent state must not apply a token twice. So `ahead` says that the
    step in flight applies just the last token, which then counts as computed. `spoilt` says why
    the state is that of other tokens, or may be, so that the KV must not be used again; it is empty
    otherwise.
    """

    preempted: bool = False
    ahead: bool = False
    spoilt: str = ""


class EngineState(Protocol):
    """The adapter's view of a vLLM scheduler. Sizes are in blocks or tokens."""

    blocks: Blocks
    cache: PrefixCache
    hash_tokens: int
    """Tokens that one of a request's block hashes stands for."""
    sizes: BlockSizes
    """The tokens of a block in each group."""
    groups: Groups
    """How the blocks of a request divide among the groups of layers."""
    attention_tokens: int
    """Tokens in a block of full attention, or of the only group."""
    layout: Layout
    """What the groups of layers allow at a pause."""
    max_context_tokens: int
    max_running: int

    # -- engine ----------------------------------------------------------------------------------

    @property
    def connector(self) -> Any:
        """Return the KV connector of the scheduler, or None."""
        ...

    @property
    def reports_stats(self) -> bool:
        """Return whether statistics leave the engine."""
        ...

    @property
    def goes_by_priority(self) -> bool:
        """Return whether vLLM orders requests by priority, so that no ranking applies."""
        ...

    def recompute_failed_loads(self) -> None:
        """Make vLLM recompute KV that a connector could not load, and not fail the request."""
        ...

    # -- requests --------------------------------------------------------------------------------

    def request(self, request_id: str) -> Request | None:
        """Return the request of that id, if it is alive."""
        ...

    def request_ids(self) -> Collection[str]:
        """Return the ids of all requests that are alive."""
        ...

    def running(self) -> Sequence[Request]:
        """Return the requests of the running batch. Do not keep or change it."""
        ...

    def running_context(self) -> int:
        """Return the sum of the running requests' computed tokens."""
        ...

    def decoding(self) -> int:
        """Return how many running requests have all tokens but the last computed."""
        ...

    def is_over(self, client_index: int, request_id: str) -> None:
        """Tell a client that a request is over which vLLM's scheduler never had, or had ended.

        The load balancer of data-parallel engines counts a request until it is told so.
        """
        ...

    # -- queues ----------------------------------------------------------------------------------

    def anything_queued(self) -> bool:
        """Return whether any request is in a waiting queue; parked ones are not."""
        ...

    def queues(self) -> tuple[Queue, Queue]:
        """Return the queue of requests that hold KV, which vLLM tries first, and the other one."""
        ...

    def ready(self) -> list[Request]:
        """Return the waiting requests that vLLM could admit now, in its own order."""
        ...

    def park(self, request: Request) -> None:
        """Take a paused request out of vLLM's queues until its next chunk comes.

        vLLM and the rankings look at everything in the queues at every step.
        """
        ...

    def parked(self) -> Collection[Request]:
        """Return the paused requests that are in none of vLLM's queues."""
        ...

    def forget(self, request_id: str) -> None:
        """Forget a request that is about to be freed."""
        ...

    def in_queue_order(self) -> Iterator[Request]:
        """Yield all requests in vLLM's queues in the order in which vLLM will try them."""
        ...

    def was_passed_over(self, request: Request) -> bool:
        """Return whether vLLM skipped a request without KV in an earlier step.

        vLLM's reasons are an undecided connector or too many adapters.
        """
        ...

    def slots_left(self, kept: int) -> int:
        """Return how many requests may join the batch, while paused ones keep `kept` slots."""
        ...

    def hold_back(self, queue: Queue, held: list[Request], places: Mapping[str, int]) -> None:
        """Remove the `held` requests from a queue for one step, and sort the others by rank.

        `places` are the ranks of the ready requests; blocked requests keep their place.
        """
        ...

    def hold_back_paused(self) -> None:
        """Remove paused requests from the queues, since vLLM would examine all in every step."""
        ...

    # -- the step --------------------------------------------------------------------------------

    @property
    def step_tokens(self) -> int:
        """Return the maximum number of query tokens of the next step."""
        ...

    def admits_nothing(self) -> bool:
        """Return whether the engine is paused for all requests, so that none runs."""
        ...

    def is_paused(self) -> bool:
        """Return whether the engine is paused, for new requests or for all."""
        ...

    def step(self, max_tokens: int, kept_slots: int) -> AbstractContextManager[None]:
        """Limit the step scheduled within the context, then put held-back requests back.

        vLLM counts paused sessions as running, since its runner would keep a slot for each. Within
        the context only `kept_slots` of them count.
        """
        ...

    def work_of(self, output: SchedulerOutput) -> StepWork:
        """Return what a step that was just scheduled computes."""
        ...

    def frees_wait_for_steps(self) -> bool:
        """Return whether blocks are freed only after the steps in flight have ended."""
        ...

    def frees_are_pending(self) -> bool:
        """Return whether blocks will be free when the steps in flight have ended."""
        ...

    # -- a simulation ----------------------------------------------------------------------------

    def levels(self) -> tuple[int, int, int]:
        """Return how many requests run, how many queue, and how many are paused."""
        ...

    def chunks_of(self, output: SchedulerOutput) -> list[tuple[str, int, int, bool]]:
        """Return a tuple for each request of a step.

        It holds the request's id, the tokens of the chunk, the tokens computed after it, and
        whether more prefill follows before a token is decoded.
        """
        ...

    def admitted_in(self, output: SchedulerOutput) -> list[tuple[str, int]]:
        """Return the requests that are new to the runner in a step, and their cached tokens."""
        ...

    def finish_names_into(self, names: dict[str, None]) -> None:
        """Make vLLM add the ids of requests that end from now on to `names`.

        vLLM's own collection is a set, whose order would change from run to run.
        """
        ...

    def use_first_runner(self) -> None:
        """Make the scheduler's outputs fit vLLM's first model runner, for any configuration."""
        ...

    # -- blocks of requests ----------------------------------------------------------------------

    def blocks_of(self, request_id: str) -> Sequence[Block]:
        """Return the blocks that a request holds, in order, group after group."""
        ...

    def rows_of(self, request_id: str) -> Sequence[Sequence[Block]]:
        """Return the blocks that a request holds, by group."""
        ...

    def places_of(self, request: Request, tokens: int) -> Sequence[Place]:
        """Return where a request has what it needs to go on behind `tokens` tokens.

        Without one of these blocks, none is returned.
        """
        ...

    def block_count(self, request_id: str) -> int:
        """Return how many blocks a request holds in all groups, null blocks left out."""
        ...

    def running_demand(self, free: int) -> tuple[int, int]:
        """Return the blocks and the query tokens that running requests need in this step.

        The number of blocks is an upper bound if that fits into the `free` ones.
        """
        ...

    def admission_demand(
        self, request: Request, free: int, loads_over_steps: LoadsOverSteps
    ) -> tuple[int, int]:
        """Return the blocks that admitting a request needs, and its cached tokens.

        The prefix cache is searched only if the whole request might not fit into the `free` ones.
        """
        ...

    def detach(self, request: Request, keep: int | None) -> tuple[list[Block], int]:
        """Reset a paused request's computed tokens, and move it to the queue without KV.

        Return its first `keep` blocks, whose references become the caller's, and how many of the
        other blocks became free. With None all blocks of every group are released, none counted.
        """
        ...

    def give_back(self, request: Request | None, blocks: Sequence[Block]) -> None:
        """Drop references to blocks, at once or when no step in flight can use them.

        `request` is the one that computed them, if a step in flight may belong to it.
        """
        ...

    def blocks_given_back(self) -> Sequence[Block]:
        """Return the blocks that will be freed when the steps in flight have ended."""
        ...

    # -- blocks that change hands ----------------------------------------------------------------

    def settled_tokens(self, request: Request) -> int | None:
        """Return how many tokens the blocks of a request that has stopped hold.

        The step in flight may add the last one. It is None where a recurrent state is of no use.
        """
        ...

    def keep(self, request: Request) -> str:
        """Keep the blocks of a request that is about to be freed; return the name they are under.

        `blocks_of` takes this name, as if it were a request's id.
        """
        ...

    def give_back_kept(self, name: str, request: Request) -> None:
        """Drop the references to blocks that were kept of a request, as `give_back` does."""
        ...

    def adopt(self, name: str, request: Request, tokens: int) -> None:
        """Give kept blocks, of the first `tokens` tokens, to a request about to be added."""
        ...

    # -- pauses ----------------------------------------------------------------------------------

    def stops(self, request: Request) -> Stop:
        """Prepare a stopped session for vLLM, and return what its KV holds.

        Draft tokens after its last token no longer count as computed. Only with asynchronous
        scheduling can a session stop while preempted: its last token was in flight when it lost
        its blocks.
        """
        ...

    def advance(self, session: Request) -> None:
        """Count one more token of a session as computed, behind which its next chunk begins."""
        ...

    def keep_in_queue(self, request: Request) -> None:
        """Keep a session that stopped while preempted in its queue."""
        ...

    def requeue_stopped(self) -> None:
        """Put sessions that stopped in this step where they wait: in vLLM's queues, or parked."""
        ...

    def give_slot_back(self, request_id: str) -> None:
        """Make the model runner free the slot of a paused request, as for a preempted one."""
        ...

    def tell_again(self, output: SchedulerOutput) -> None:
        """Tell the model runner of given-back slots in the next step too, if this has no tokens.

        vLLM's first runner forgets in which block a request's recurrent state was only in steps
        with tokens. It would look there when the request comes back with other blocks.
        """
        ...

    def before_chunk(self, session: Request, frontier: int | None) -> None:
        """Prepare a session for its next chunk.

        `frontier` is the number of tokens computed at the pause, if their KV is dropped. Without
        it vLLM would drop the tokens.
        """
        ...

    def after_chunk(self, session: Request, arrival: float, dropped: bool) -> None:
        """Queue a session that received its next chunk, with `arrival` as its arrival time."""
        ...
