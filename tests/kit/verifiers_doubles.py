"""A taskset of verifiers and its harness: numbers that a tool of the harness doubles."""

import json
from collections.abc import Iterable
from typing import Any

import openai
import verifiers.v1 as vf
from verifiers.v1.runtimes import ProgramResult

__all__ = ["Doubles", "Loop"]
DOUBLE = {
    "type": "function",
    "function": {
        "name": "double",
        "description": "Double a number.",
        "parameters": {"type": "object", "properties": {"number": {"type": "integer"}}},
    },
}


class Double(vf.Task[vf.TaskData, vf.State]):
    """One number."""

    @vf.reward
    async def answered(self, trace: vf.Trace) -> float:
        """1 for a call of the tool."""
        return float(any(getattr(node.message, "tool_calls", None) for node in trace.nodes))


class Doubles(vf.Taskset[Double, vf.TasksetConfig]):
    """Two numbers."""

    def load(self) -> Iterable[Double]:
        for number in (7, 12):
            yield Double(vf.TaskData(prompt=f"double {number}"), self.config.task)


class Loop(vf.Harness[vf.HarnessConfig]):
    """Calls the model and its tool until there are answers, then goes on with an edited history."""

    NEEDS_CONTAINER = False

    async def launch(
        self, ctx: Any, trace: Any, runtime: Any, endpoint: str, secret: str, *args: Any, **_: Any
    ) -> ProgramResult:
        data = args[-1] if isinstance(args[-1], vf.TaskData) else args[1]
        _, prompt = self.resolve_prompt(data)
        messages: list[Any] = [{"role": "user", "content": prompt}]
        async with openai.AsyncOpenAI(base_url=endpoint, api_key=secret) as client:
            for text in ("And again?", "What was that?"):
                await self._answered(client, ctx.model, messages)
                messages.append({"role": "user", "content": text})
            del messages[1:-1]  # as a harness does that compacts
            await self._answered(client, ctx.model, messages)
        return ProgramResult(0, "", "")

    async def _answered(self, client: Any, model: str, messages: list[Any]) -> None:
        while True:
            told = await client.chat.completions.create(
                model=model, messages=messages, tools=[DOUBLE]
            )
            message = told.choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            for call in message.tool_calls or ():
                number = json.loads(call.function.arguments)["number"]
                result = {"role": "tool", "tool_call_id": call.id, "content": str(2 * number)}
                messages.append(result)
            if not message.tool_calls:
                return
