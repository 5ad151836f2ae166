"""The sizes and costs of a run's engine, from its workload, machine and policy."""

from dataclasses import dataclass, replace

from caesura.intercept.kv.costs import CostModel
from caesura.simulator.engine.layout import Layout, lay_out
from caesura.simulator.machine import Machine
from caesura.simulator.policy import Policy
from caesura.simulator.session import Session, Workload

SHORTEST_MODEL = 2048
"""The shortest context of a model, in tokens."""

FREE_RATE = 1e12
"""The rate of a free link in tokens per second; a cost model needs a finite rate."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The sizes that a scheduler is built for, in tokens or blocks, and the costs that it is told.

    `model_tokens` is the model's longest context: the smallest power of two that holds every
    session, and at least `SHORTEST_MODEL`. The KV cache is laid out as `layout` says, and host
    memory has `host_blocks`. `cost` is what a calibration would find, with the link's rates.
    """

    model_tokens: int
    layout: Layout
    host_blocks: int
    cost: CostModel

    @property
    def blocks(self) -> int:
        """Return the blocks of the KV cache."""
        return self.layout.blocks

    @property
    def block_tokens(self) -> int:
        """Return the tokens of a block that the prefix cache finds."""
        return self.layout.hashed_tokens


def plan_for(workload: Workload, machine: Machine, policy: Policy) -> Plan:
    """Return the plan of a run; raises `ValueError` for a session that cannot be served."""
    size = machine.block_tokens
    longest = max((session.context_tokens for session in workload.sessions), default=0)
    model_tokens = max(SHORTEST_MODEL, 1 << (longest + 1).bit_length())
    layout = lay_out(machine, model_tokens, policy.prefix_caching)
    blocks = layout.blocks
    if layout.blocks_of(longest + 1, policy.chunk_tokens) > blocks:
        raise ValueError(
            f"a session of {longest} tokens does not fit into the {blocks} blocks of {size} tokens"
            f" that the KV cache of {machine.name} holds"
        )
    for session in workload.sessions:
        _check(session)
    if len({session.key for session in workload.sessions}) < len(workload.sessions):
        raise ValueError("two sessions of the workload have the same key: make keys unique")
    host = machine.host_bytes // layout.block_bytes if policy.host else 0
    if policy.host and policy.free_link:
        # A host that holds all computed tokens is as good as an unlimited one.
        tokens = sum(session.context_tokens for session in workload.sessions)
        host = tokens // size + len(workload.sessions)
    return Plan(model_tokens, layout, host, _cost_of(machine, policy))


def _check(session: Session) -> None:
    for segment in session.segments:
        most = segment.most_tokens or segment.decode_tokens
        if not 0 < segment.decode_tokens <= most:
            raise ValueError(
                f"session {session.key}: a segment decodes {segment.decode_tokens} of {most}"
                " tokens: it must decode at least 1 token and at most its limit"
            )
    if not (session.segments and session.segments[0].given_tokens > 0):
        raise ValueError(f"session {session.key} has an empty prompt: give it at least 1 token")


def _cost_of(machine: Machine, policy: Policy) -> CostModel:
    rate = FREE_RATE if policy.free_link else machine.link_bytes / machine.kv_bytes
    if not policy.host:
        return replace(machine.cost, out_rate=0.0, in_rate=0.0)
    cost = machine.cost
    if cost.out_rate and cost.in_rate and not policy.free_link:
        return cost
    return replace(cost, out_rate=rate, in_rate=rate)
