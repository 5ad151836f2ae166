"""An application: models, and the tasks that they do for each other.

SamuLLM calls it a computation graph (section 3): a node is a task, and an edge says whose outputs a
task's prompts hold.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from caesura.scheduler.errors import UsageError


class ApplicationError(UsageError, ValueError):
    """An application cannot be planned as described; the message says how to fix it."""


@dataclass(frozen=True, slots=True)
class Model:
    """A model of an application.

    `path` is a directory or a name on the Hugging Face Hub. `arguments` are further flags of
    `vllm serve`. `tensor_parallel` are the tensor-parallel sizes that a plan may choose, and
    `max_replicas` bounds the data-parallel size (0: as many as there are devices).

    `config` is a `caesura.toml` of its server, with tools; empty: the user's, or none.

    `lengths` names where its output lengths come from, and `machines` the spec of a simulated
    machine (as `caesura simulate --machine` takes it) by tensor-parallel size.
    """

    name: str
    path: str
    arguments: tuple[str, ...] = ()
    tensor_parallel: tuple[int, ...] = (1,)
    max_replicas: int = 0
    lengths: str = ""
    machines: Mapping[int, str] = field(default_factory=dict)
    config: str = ""


@dataclass(frozen=True, slots=True)
class Task:
    """One model's work on rows: a node of the graph.

    Each row of `rows` makes `samples` requests. Its prompt is the Jinja `template`, which sees the
    row's fields and the outputs of the tasks in `needs` for the same row. A row with a list in the
    field `loop` is a chain: the request of an item also sees the output of the item before it (a
    self-loop, as in a chain summary).

    `route` is the share of the rows that this task takes in a routing, from `route_from` to
    `route_to` in [0, 1). Rows are drawn by a hash of their key, so that the tasks of one routing
    share them without a gap. `asks` are models that the task's model may call as tools, and
    `tools` are tools of the server's configuration that it may call.

    Tasks whose names agree up to an `@` form a group: the tasks of an ensemble or of a routing.
    """

    name: str
    model: str
    template: str
    rows: tuple[Mapping[str, object], ...] = ()
    needs: tuple[str, ...] = ()
    loop: str = ""
    samples: int = 1
    max_tokens: int = 256
    temperature: float = 0.0
    system: str = ""
    asks: tuple[str, ...] = ()
    route_from: float = 0.0
    route_to: float = 1.0
    tools: tuple[str, ...] = ()

    @property
    def group(self) -> str:
        """Return the name of its group: its own name up to an `@`."""
        return self.name.partition("@")[0]

    @property
    def routed(self) -> bool:
        """Return whether it takes only a share of the rows."""
        return self.route_from > 0 or self.route_to < 1


@dataclass(frozen=True, slots=True)
class Application:
    """Models and tasks, in an order in which every task stands behind those that it needs.

    `devices` is the number of devices that a plan may use; 0 leaves it to the command.
    """

    name: str
    models: tuple[Model, ...]
    tasks: tuple[Task, ...]
    seed: int = 0
    devices: int = 0

    def model(self, name: str) -> Model:
        """Return the model of this name; raises `KeyError` without it."""
        return {model.name: model for model in self.models}[name]
