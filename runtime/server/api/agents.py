"""Requests that name an agent as their model: what the agent adds to them.

Its instructions stand before what the client tells the model, and its tools before the client's, so
that the prompts of all its sessions begin alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Self, TypeVar

from pydantic import BaseModel

from caesura.runtime.engine import Engine
from caesura.runtime.run.context import Plan
from caesura.runtime.run.fold import digest
from caesura.runtime.run.limits import Limits, bounded
from caesura.runtime.run.served_agent import Agents, ServedAgent
from caesura.runtime.server.http.errors import ApiError, invalid
from caesura.scheduler.messages import Message, Sampling, ToolSpec
from caesura.tools.registry import Registry

Asked = TypeVar("Asked", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class AgentRequest:
    """An agent and its tools, as they are for one request."""

    agent: ServedAgent
    own: Registry

    @classmethod
    def of(cls, model: str | None, agents: Agents) -> Self | None:
        """Return the agent that a request names as its model, or None if it names none."""
        agent = None if model is None else agents.get(model)
        return None if agent is None else cls(agent, agent.tools())

    def asked(self, request: Asked) -> Asked:
        """Return the request, which names the agent's tools before its own `server_tools`."""
        named: Sequence[str] = getattr(request, "server_tools", ())
        names = [*self.own.names, *(name for name in named if name not in self.own)]
        return request.model_copy(update={"server_tools": names})

    def among(self, tools: Registry) -> Registry:
        """Return the server's tools with those of the agent.

        Among `tools`, one of the agent's may have settings of the request's.
        """
        mine = [tools.get(tool.name) or tool for tool in self.own]
        others = [tool for tool in tools if tool.name not in self.own]
        return Registry([*mine, *others], shared=tools)

    def limits(self, engine: Engine) -> Limits:
        """Return the bounds of the run, within what the engine can answer."""
        return bounded(self.agent.limits, engine.max_answer_tokens)

    @property
    def head(self) -> list[Message]:
        """The system message with the instructions, if there are any."""
        told = self.agent.instructions
        return [{"role": "system", "content": told}] if told else []

    def specs(self, specs: Sequence[ToolSpec]) -> list[ToolSpec]:
        """Return the tools of a prompt, those of the agent first."""
        return sorted(specs, key=lambda spec: spec["function"]["name"] not in self.own)

    def plan(self, plan: Plan) -> Plan:
        """Return the plan of the request `asked`, with all that the agent adds to it.

        Raises `ApiError` for a request of another form than that of the agent's typed answers.
        """
        if self.agent.check is not None and plan.sampling.text is not None:
            raise invalid(
                f"The agent {self.agent.name!r} answers in a form of its own: leave"
                " response_format, text.format or output_config.format out."
            )
        messages = (*self.head, *plan.messages)
        sampling = filled(plan.sampling, self.agent.sampling)
        spec = replace(plan.spec, tools=self.specs(plan.spec.tools), sampling=sampling)
        return replace(
            plan,
            messages=messages,
            conversation=digest(messages),
            sampling=sampling,
            spec=spec,
            agent=self.agent.name,
        )


def filled(sampling: Sampling, defaults: Sampling) -> Sampling:
    """Return the settings, with the defaults for those that are left out."""
    usual = Sampling()
    left = {
        each.name: getattr(defaults, each.name)
        for each in fields(Sampling)
        if getattr(sampling, each.name) == getattr(usual, each.name)
    }
    return replace(sampling, **left)


def agents_adapter(agent: ServedAgent, engine: Engine) -> str | None:
    """Return the LoRA adapter of an agent; raise `ApiError` 404 if it is not loaded."""
    if agent.adapter is not None and agent.adapter not in engine.adapters:
        raise ApiError(
            404,
            f"The agent {agent.name!r} answers with the adapter {agent.adapter!r}, which is not"
            " loaded here.",
            param="model",
            code="model_not_found",
        )
    return agent.adapter
