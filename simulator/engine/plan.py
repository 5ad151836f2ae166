"""What a run needs of an engine: sizes and costs, from its workload, machine and policy."""

from dataclasses import dataclass, replace

from caesura.intercept.kv.costs import CostModel
from caesura.simulator.machine import Machine
from caesura.simulator.policy import Policy
from caesura.simulator.session import Session, Workload

SHORTEST_MODEL = 2048
"""No model's context is taken to be shorter than this."""

FREE_RATE = 1e12
"""What a free link carries, in tokens a second: finite, as a cost model demands."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a scheduler is built for, all sizes in tokens or blocks.

    `model_tokens` is the longest context that the model takes: the smallest power of two that
    holds every session, and no less than `SHORTEST_MODEL`. `blocks` of `block_tokens` fit into the
    KV cache, `host_blocks` into host memory.
    """

    model_tokens: int
    block_tokens: int
    blocks: int
    host_blocks: int


def plan_for(workload: Workload, machine: Machine, policy: Policy) -> Plan:
    """Work out the sizes; raises `ValueError` for a session that could never be served."""
    size = machine.block_tokens
    blocks = machine.kv_tokens // size
    longest = max((session.context_tokens for session in workload.sessions), default=0)
    if longest >= blocks * size:
        raise ValueError(
            f"a session of {longest} tokens does not fit into the {blocks} blocks of {size} tokens"
            f" that the KV cache of {machine.name} holds"
        )
    for session in workload.sessions:
        _check(session)
    if len({session.key for session in workload.sessions}) < len(workload.sessions):
        raise ValueError("two sessions have the same key")
    host = machine.host_bytes // (size * machine.kv_bytes) if policy.host else 0
    if policy.host and policy.free_link:
        # A host without end is one that holds all that is ever computed.
        tokens = sum(session.context_tokens for session in workload.sessions)
        host = tokens // size + len(workload.sessions)
    model_tokens = max(SHORTEST_MODEL, 1 << (longest + 1).bit_length())
    return Plan(model_tokens, size, blocks, host)


def _check(session: Session) -> None:
    for segment in session.segments:
        most = segment.most_tokens or segment.decode_tokens
        if not 0 < segment.decode_tokens <= most:
            raise ValueError(
                f"session {session.key}: a segment decodes {segment.decode_tokens} of {most} tokens"
            )
    if not (session.segments and session.segments[0].given_tokens > 0):
        raise ValueError(f"session {session.key} begins with nothing")


def cost_of(machine: Machine, policy: Policy) -> CostModel:
    """Return what a calibration would have found, the link's rates included."""
    rate = FREE_RATE if policy.free_link else machine.link_bytes / machine.kv_bytes
    if not policy.host:
        return replace(machine.cost, out_rate=0.0, in_rate=0.0)
    cost = machine.cost
    if cost.out_rate and cost.in_rate and not policy.free_link:
        return cost
    return replace(cost, out_rate=rate, in_rate=rate)
