"""The replicas of a run, in this process or spread over several."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, Protocol

from caesura.scheduler.errors import EngineFailed
from caesura.simulator.engine.core import collecting_rarely
from caesura.simulator.engine.replicas.messages import Account, News, Orders
from caesura.simulator.engine.replicas.replica import Build, Replica
from caesura.simulator.workers import Workers, in_a_worker

Epoch = Mapping[int, Orders]
"""The orders of an epoch by replica; a replica without orders just runs."""


class Shards(Protocol):
    """All replicas of a run."""

    def run(self, orders: Epoch, end: float) -> Sequence[News]:
        """Run every replica up to the second `end`; return their news, in their order."""
        ...

    def close(self, end: float) -> Sequence[Account]:
        """Stop every replica at the second `end`; return what they measured, in their order."""
        ...


class Here:
    """Replicas in this process."""

    def __init__(self, build: Build, numbers: Sequence[int]) -> None:
        self._replicas = {number: Replica(build) for number in numbers}

    def run(self, orders: Epoch, end: float) -> list[News]:
        """Run the replicas one after the other."""
        return [one.run(orders.get(number), end) for number, one in self._replicas.items()]

    def close(self, end: float) -> list[Account]:
        """Stop the replicas."""
        return [one.close(end) for one in self._replicas.values()]


class Spread:
    """Replicas in several processes, in turn; what they do does not depend on where they are."""

    def __init__(self, pipes: Sequence[Connection], replicas: int) -> None:
        self._pipes = pipes
        self._count = len(pipes)
        self._replicas = replicas

    def run(self, orders: Epoch, end: float) -> list[News]:
        """Run the replicas of all processes at the same time."""
        parts: list[dict[int, Orders]] = [{} for _ in self._pipes]
        for number, told in orders.items():
            parts[number % self._count][number] = told
        return self._ask([(part, end, False) for part in parts])

    def close(self, end: float) -> list[Account]:
        """Stop the replicas of all processes."""
        return self._ask([({}, end, True) for _ in self._pipes])

    def _ask(self, questions: Sequence[Any]) -> list[Any]:
        try:
            for pipe, question in zip(self._pipes, questions, strict=True):
                pipe.send(question)
            answers = [pipe.recv() for pipe in self._pipes]
        except (EOFError, OSError) as error:
            raise EngineFailed(
                f"one of {self._count} processes with {self._replicas} replicas died, possibly out"
                " of memory: simulate fewer sessions or replicas at once, or use fewer --jobs"
            ) from error
        failed = next((one for one in answers if isinstance(one, Exception)), None)
        if failed is not None:
            raise failed
        return [
            answers[number % self._count][number // self._count] for number in range(self._replicas)
        ]


@contextmanager
def sharded(build: Build, replicas: int, processes: int) -> Iterator[Shards]:
    """Yield the replicas, spread over `processes` processes; end these with the block.

    With one process they run in this one.
    """
    if min(processes, replicas) <= 1:
        yield Here(build, range(replicas))
        return
    count = min(processes, replicas)
    workers, pipes = Workers(build), []
    try:
        for shard in range(count):
            ours, theirs = workers.Pipe()
            pipes.append(ours)
            numbers = range(shard, replicas, count)
            workers.Process(target=_serve, args=(theirs, build, numbers)).start()
            theirs.close()
        yield Spread(pipes, replicas)
    finally:
        for pipe in pipes:
            pipe.close()
        workers.end()


def _serve(pipe: Connection, build: Build, numbers: Sequence[int]) -> None:
    """Run some replicas, in a process of their own, until they are closed."""
    in_a_worker()
    try:
        here = Here(build, numbers)
        with collecting_rarely():
            while True:
                orders, end, closes = pipe.recv()
                pipe.send(here.close(end) if closes else here.run(orders, end))
    except EOFError:
        return  # the front is gone, or has what it wanted
    except Exception as error:
        pipe.send(error)
