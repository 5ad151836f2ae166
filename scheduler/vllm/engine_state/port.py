"""What Caesura asks of vLLM's scheduler, its KV cache manager and its queues."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.request import Request

from caesura.scheduler.vllm.engine_state.blocks import Block, Blocks

Queue = Iterable[Request]
"""One of vLLM's waiting queues, in the order in which vLLM tries it."""

LoadsOverSteps = Callable[[Request, int], bool]
"""Returns whether a request with so many tokens cached would wait for KV from the host."""


@dataclass(slots=True)
class StepWork:
    """What the requests of a step compute.

    `decode_tokens` are those of requests past their prompt. `context_tokens` is the sum of the
    tokens that all of them have computed when the step ends, `partial_blocks` the number of their
    last blocks that are not full then. `prefills` are the other requests: id, first token of the
    chunk, and its length.
    """

    decode_tokens: int = 0
    context_tokens: int = 0
    partial_blocks: int = 0
    prefills: Sequence[tuple[str, int, int]] = ()


class EngineState(Protocol):
    """A vLLM scheduler as the rest of this adapter sees it. Sizes are in blocks or tokens."""

    blocks: Blocks
    block_size: int
    """Tokens in a block."""
    single_blocks_findable: bool
    """Whether single blocks can be given up and found again: one KV cache group, with caching."""
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
        """Return whether vLLM was told to go by priorities: then nothing else ranks."""
        ...

    def recompute_failed_loads(self) -> None:
        """Have vLLM recompute what a connector could not load, and not fail its request."""
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
        """Return the tokens that the running requests have computed, summed up."""
        ...

    def decoding(self) -> int:
        """Return how many running requests lack a single token."""
        ...

    # -- queues ----------------------------------------------------------------------------------

    def anything_queued(self) -> bool:
        """Return whether any request is in a waiting queue, paused ones included."""
        ...

    def queues(self) -> tuple[Queue, Queue]:
        """Return the queue of requests that hold KV, which vLLM tries first, and the other one."""
        ...

    def ready(self) -> list[Request]:
        """Return the waiting requests that vLLM could admit now, in its own order."""
        ...

    def in_queue_order(self) -> Iterator[Request]:
        """Yield all waiting requests in the order in which vLLM will try them."""
        ...

    def was_passed_over(self, request: Request) -> bool:
        """Return whether vLLM could not take a request without KV in an earlier step.

        Its reason is its own: a connector that is undecided, too many adapters.
        """
        ...

    def slots_left(self, kept: int) -> int:
        """Return how many requests may join the batch, if paused ones have `kept` so many slots."""
        ...

    def hold_back(self, queue: Queue, held: list[Request], places: Mapping[str, int]) -> None:
        """Take the `held` requests out of a queue until the step is made, and rank the others.

        `places` are the ranks of those that are ready; blocked ones keep their place.
        """
        ...

    def hold_back_paused(self) -> None:
        """Take paused requests out of the queues: vLLM would look at each of them in every step."""
        ...

    # -- the step --------------------------------------------------------------------------------

    @property
    def step_tokens(self) -> int:
        """Return how many query tokens the coming step may have."""
        ...

    def admits_nothing(self) -> bool:
        """Return whether the engine is paused altogether: no request runs."""
        ...

    def is_paused(self) -> bool:
        """Return whether the engine is paused, for new requests or for all."""
        ...

    def step(self, max_tokens: int, kept_slots: int) -> AbstractContextManager[None]:
        """Bound the step that is made inside, and put back then what was held back.

        vLLM counts paused sessions as running, since its runner would keep a slot for each; inside
        only the `kept_slots` count.
        """
        ...

    def work_of(self, output: SchedulerOutput) -> StepWork:
        """Return what a step that was just scheduled computes."""
        ...

    def frees_wait_for_steps(self) -> bool:
        """Return whether blocks are freed only when the steps in flight are over."""
        ...

    def frees_are_pending(self) -> bool:
        """Return whether blocks will be free once the steps in flight are over."""
        ...

    # -- a simulation ----------------------------------------------------------------------------

    def levels(self) -> tuple[int, int, int]:
        """Return how many requests run, how many queue, and how many are paused."""
        ...

    def chunks_of(self, output: SchedulerOutput) -> list[tuple[str, int, int, bool]]:
        """Return what a step computes of each request.

        Its id, the tokens of the chunk, the tokens that are computed behind it, and whether more
        of them are to come before one is decoded.
        """
        ...

    def admitted_in(self, output: SchedulerOutput) -> list[tuple[str, int]]:
        """Return which requests are new to the runner in a step, and how much they skip of it."""
        ...

    def finish_names_into(self, names: dict[str, None]) -> None:
        """Have the ids of requests that end from now on added to `names`.

        vLLM's own collection is a set, whose order would change from run to run.
        """
        ...

    def use_first_runner(self) -> None:
        """Make outputs for vLLM's first model runner, whatever the configuration says."""
        ...

    # -- blocks of requests ----------------------------------------------------------------------

    def blocks_of(self, request_id: str) -> Sequence[Block]:
        """Return the blocks that a request holds, front to back, group after group."""
        ...

    def block_count(self, request_id: str) -> int:
        """Return how many blocks a request holds."""
        ...

    def running_demand(self, free: int) -> tuple[int, int]:
        """Return the blocks and the query tokens that running requests ask for in this step.

        The blocks are an upper bound where that fits into the `free` ones.
        """
        ...

    def admission_demand(
        self, request: Request, free: int, loads_over_steps: LoadsOverSteps
    ) -> tuple[int, int]:
        """Return the blocks that admitting a request takes, and its tokens that are cached.

        The prefix cache is only asked where the whole request might not fit into the `free` ones.
        """
        ...

    def detach(self, request: Request, keep: int | None) -> tuple[list[Block], int]:
        """Make a paused request one that has computed nothing, in the queue of those without KV.

        Return its `keep` front blocks, whose references become the caller's, and how many of the
        others got free. None gives up all blocks, of every group, and counts none.
        """
        ...

    def give_back(self, request: Request | None, blocks: Sequence[Block]) -> None:
        """Drop references to blocks, at once or when no step in flight may touch them any more.

        `request` is the one that they were computed by, if a step in flight may belong to it.
        """
        ...

    def blocks_given_back(self) -> Sequence[Block]:
        """Return the blocks that are freed when the steps in flight are over."""
        ...

    # -- pauses ----------------------------------------------------------------------------------

    def stops(self, request: Request) -> bool:
        """Prepare a stopped session for vLLM; return whether it was preempted meanwhile.

        Draft tokens behind its last token do not count as computed any more. To stop while
        preempted takes asynchronous scheduling: the last token was in flight when it lost its
        blocks.
        """
        ...

    def keep_in_queue(self, request: Request) -> None:
        """Note that a session that stopped while preempted has to stay in its queue."""
        ...

    def requeue_stopped(self) -> None:
        """Undo that vLLM takes sessions which stopped while preempted out of its queues."""
        ...

    def give_slot_back(self, request_id: str) -> None:
        """Have the model runner free the slot of a paused request, as that of a preempted one."""
        ...

    def before_chunk(self, session: Request, frontier: int | None) -> None:
        """Prepare a session for its next chunk.

        `frontier` are the tokens that were computed when it paused, if their KV is dropped: vLLM
        would keep no token otherwise.
        """
        ...

    def after_chunk(self, session: Request, arrival: float, dropped: bool) -> None:
        """Queue a session that got its next chunk, as one that came at `arrival`."""
        ...
