"""The order in which the models of a stage are simulated."""

from collections.abc import Iterable, Sequence
from graphlib import TopologicalSorter


def components(
    models: Sequence[str], needs: Iterable[tuple[str, str]], shares: Sequence[str]
) -> list[tuple[str, ...]]:
    """Return the models in groups, each group behind those that it needs (topological order).

    `needs` are (source, target) pairs: the target waits for the source. Models of a group need each
    other, or share devices: `shares` names those of each model, or is empty. Needs of
    models that are not in `models` do not count.
    """
    place = {model: number for number, model in enumerate(models)}
    reach = [[i == j for j in range(len(models))] for i in range(len(models))]
    for source, target in needs:
        if source in place and target in place:
            reach[place[source]][place[target]] = True
    for i, name in enumerate(shares):
        for j, other in enumerate(shares):
            if name and name == other:
                reach[i][j] = True
    for middle in range(len(models)):
        for i in range(len(models)):
            if reach[i][middle]:
                reach[i] = [a or b for a, b in zip(reach[i], reach[middle], strict=True)]
    group_of = [
        min(j for j in range(len(models)) if reach[i][j] and reach[j][i])
        for i in range(len(models))
    ]
    graph = {
        group: {group_of[i] for i in range(len(models)) if reach[i][group] and group_of[i] != group}
        for group in group_of
    }
    return [
        tuple(models[i] for i in range(len(models)) if group_of[i] == group)
        for group in TopologicalSorter(graph).static_order()
    ]
