"""The templates of prompts: Jinja in a sandbox, and the names that they use."""

import json
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from caesura.distribution import install
from caesura.planning.application.application import ApplicationError

if TYPE_CHECKING:
    from jinja2 import Environment
    from jinja2.nodes import Template as Tree

OUTPUTS, ITEM, PREVIOUS = "outputs", "item", "previous"
RESERVED = (OUTPUTS, ITEM, PREVIOUS)
"""Names that are not fields of a row: outputs of other tasks, a chain's item, the output before."""


class PromptError(Exception):
    """A template could not be filled in from the outputs that came; the message says why."""


class Template:
    """A compiled template.

    `fields` are the fields of a row that it cannot do without, and `outputs` the tasks whose
    outputs it names. Raises `ApplicationError` for a mistake in its text.
    """

    def __init__(self, text: str) -> None:
        from jinja2 import TemplateSyntaxError

        environment = _environment()
        try:
            tree = environment.parse(text)
            self._template = environment.from_string(text)
        except TemplateSyntaxError as error:
            raise ApplicationError(
                f"line {error.lineno} of the template is not valid Jinja: {error.message}"
            ) from None
        self.fields = _undeclared(tree) - set(RESERVED)
        self.outputs = frozenset(_named_outputs(tree))

    def render(self, values: Mapping[str, object]) -> str:
        """Return the text; raises `PromptError` if the values do not fit the template."""
        try:
            return self._template.render(values)
        # An operation in a template raises what the operation raises in Python.
        except Exception as error:
            raise PromptError(f"the template cannot be filled in: {error}") from None


@cache
def _environment() -> "Environment":
    try:
        from jinja2 import StrictUndefined
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ModuleNotFoundError:
        raise ApplicationError(
            f"templates take the package 'jinja2': install it ({install('planning')})"
        ) from None
    environment = ImmutableSandboxedEnvironment(undefined=StrictUndefined)
    environment.filters["fromjson"] = json.loads
    return environment


def _undeclared(tree: "Tree") -> frozenset[str]:
    """Return the variables that a template uses without asking first whether they are defined."""
    from jinja2 import meta, nodes

    asking = {"defined", "undefined", "default", "d"}
    asked = {
        each.node.name
        for each in tree.find_all((nodes.Test, nodes.Filter))
        if each.name in asking and isinstance(each.node, nodes.Name)
    }
    return frozenset(meta.find_undeclared_variables(tree) - asked)


def _named_outputs(tree: "Tree") -> set[str]:
    """Return the names in `outputs.NAME` and `outputs["NAME"]`."""
    from jinja2 import nodes

    def of_outputs(node: object) -> bool:
        return isinstance(node, nodes.Name) and node.name == OUTPUTS

    named = {each.attr for each in tree.find_all(nodes.Getattr) if of_outputs(each.node)}
    for each in tree.find_all(nodes.Getitem):
        if of_outputs(each.node) and isinstance(each.arg, nodes.Const):
            named.add(str(each.arg.value))
    # Methods of the mapping itself.
    return named - {"items", "keys", "values", "get"}
