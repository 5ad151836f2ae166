"""Calls of Python and of the shell that the server runs, in the form of OpenAI's own tools."""

from collections.abc import Sequence
from typing import Any

from caesura.runtime.server.responses import ids
from caesura.runtime.server.responses.output import OutputItem, Outputs, command_events, object_in
from caesura.tools.code.shell import outcome_in

OUTPUTS = "code_interpreter_call.outputs"


class CodeItem(OutputItem):
    """Code that the server's Python runs, in the form of OpenAI's code interpreter.

    `include` is that of the request: what the code wrote is told where it names that.
    """

    def __init__(
        self, outputs: Outputs, arguments: str, container_id: str, include: Sequence[str]
    ) -> None:
        code = str(object_in(arguments).get("code") or "")
        self._include = include
        item = {
            "type": "code_interpreter_call",
            "id": outputs.ids.item(ids.CODE_CALL),
            "status": "in_progress",
            "code": "",
            "container_id": container_id,
            "outputs": None,
        }
        super().__init__(outputs, item)
        self._say("response.code_interpreter_call.in_progress")
        if code:
            self._say("response.code_interpreter_call_code.delta", delta=code)
        self._item["code"] = code
        self._say("response.code_interpreter_call_code.done", code=code)
        self._say("response.code_interpreter_call.interpreting")
        self._item["status"] = "interpreting"

    def close(self, result: str, pictures: Sequence[str], *, has_failed: bool) -> None:
        """Close the call with what the model reads, and the addresses of pictures."""
        if OUTPUTS in self._include:
            told: list[dict[str, Any]] = [{"type": "logs", "logs": result}]
            told += [{"type": "image", "url": url} for url in pictures]
            self._item["outputs"] = told
        self._item["status"] = "failed" if has_failed else "completed"
        if not has_failed:
            self._say("response.code_interpreter_call.completed")
        self._close()

    def abandon(self) -> None:
        """Close the call without a result, since the run ended before it returned."""
        self._item["status"] = "incomplete"
        self._close()


class ShellItem(OutputItem):
    """A command that the server's shell runs; its output is an item of its own."""

    def __init__(self, outputs: Outputs, arguments: str, call_id: str) -> None:
        commands = [str(object_in(arguments).get("command") or "")]
        item = {
            "type": "shell_call",
            "id": outputs.ids.item(ids.SHELL_CALL),
            "status": "in_progress",
            "call_id": call_id,
            "action": {"commands": commands, "timeout_ms": None, "max_output_length": None},
        }
        super().__init__(outputs, item)
        for each in command_events(commands):
            self._say(**each)
        self._item["status"] = "completed"
        self._close()


class ShellOutputItem(OutputItem):
    """What a command wrote, and how it ended."""

    def __init__(self, outputs: Outputs, call_id: str, result: str) -> None:
        item: dict[str, Any] = {
            "type": "shell_call_output",
            "id": outputs.ids.item(ids.SHELL_OUTPUT),
            "status": "in_progress",
            "call_id": call_id,
            "max_output_length": None,
            "output": [],
        }
        super().__init__(outputs, item)
        told = outcome_in(result)
        outcome: dict[str, Any] = {"type": "timeout"}
        if told.exit_code is not None:
            outcome = {"type": "exit", "exit_code": told.exit_code}
        output = [{"stdout": told.stdout, "stderr": told.stderr, "outcome": outcome}]
        done = "response.shell_call_output_content.done"
        self._say(done, command_index=0, output=output)
        self._item |= {"status": "completed", "output": output}
        self._close()
