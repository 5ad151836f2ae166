"""The coding agents of the gate: how each is installed, set up and asked, and what it is to do."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from tests.agents.task import LOOK, MEND, RIGHT, RUN, TEST, WRONG, mark, question, task
from tests.agents.templates import Turn
from tests.formats.rendering import Call


@dataclass(frozen=True, eq=False)
class Client:
    """A client. `@URL@`, `@MODEL@`, `@HOME@`, `@REPO@` and `@PROMPT@` stand for what differs."""

    name: str
    packages: tuple[tuple[str, ...], ...]
    """Packages that are installed together; the first alternative that can be had is taken."""
    program: str
    """Its program, in its folder."""
    api: str
    environment: Mapping[str, str]
    """What it needs to know of the server."""
    quiet: Mapping[str, str]
    """What keeps it from calling home, and from looking for updates."""
    files: Mapping[str, str]
    """Files below its home directory, by path."""
    first: tuple[str, ...]
    """The arguments that ask it a first prompt."""
    second: tuple[str, ...]
    """The arguments that go on in the same session; empty if it has no such command."""
    tool: str
    """A tool that it declares whenever it is at the task; empty if it has none."""
    turns: tuple[Turn, ...]
    then: tuple[Turn, ...] = ()
    node: int = 0
    """The least major release of Node that it needs; 0 for a package of Python."""
    python: int = 11
    """The least minor release of Python 3 that it needs."""
    setup: tuple[str, ...] = ()
    """The arguments that set it up, where files do not."""

    @property
    def folder(self) -> str:
        """The name of its folder, and of its recordings."""
        return self.name.lower().replace(" ", "-")

    @property
    def marked(self) -> dict[str, tuple[Turn, ...]]:
        """Its turns, by the mark of the prompt."""
        return {mark(self.folder, 1): self.turns, mark(self.folder, 2): self.then}


def _json(value: object) -> str:
    return json.dumps(value, indent=2)


CODEX = Client(
    name="Codex",
    packages=(("@openai/codex",),),
    program="node_modules/.bin/codex",
    api="responses",
    environment={"CAESURA_KEY": "none"},
    quiet={},
    files={
        ".codex/config.toml": """model = "@MODEL@"
model_provider = "caesura"
model_context_window = 100000
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false

[model_providers.caesura]
name = "caesura"
base_url = "@URL@/v1"
wire_api = "responses"
env_key = "CAESURA_KEY"

[analytics]
enabled = false

[feedback]
enabled = false

[projects."@REPO@"]
trust_level = "trusted"
"""
    },
    first=("exec", "@PROMPT@"),
    second=("exec", "resume", "--last", "@PROMPT@"),
    tool="exec_command",
    turns=task(
        (
            Call("exec_command", {"cmd": "cat calc.py"}),
            Call("exec_command", {"cmd": "cat README.md"}),
        ),
        Call("exec_command", {"cmd": MEND}),
        Call("exec_command", {"cmd": RUN}),
    ),
    then=question(Call("exec_command", {"cmd": LOOK})),
    node=16,
)

CLAUDE = Client(
    name="Claude Code",
    packages=(("@anthropic-ai/claude-code",),),
    program="node_modules/.bin/claude",
    api="messages",
    environment={
        "ANTHROPIC_BASE_URL": "@URL@",
        "ANTHROPIC_AUTH_TOKEN": "none",
        "ANTHROPIC_MODEL": "@MODEL@",
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": "@MODEL@",
        "ANTHROPIC_DEFAULT_SONNET_MODEL": "@MODEL@",
        "ANTHROPIC_DEFAULT_OPUS_MODEL": "@MODEL@",
    },
    quiet={
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_AUTOUPDATER": "1",
        "IS_SANDBOX": "1",
    },
    files={},
    first=("--dangerously-skip-permissions", "-p", "@PROMPT@"),
    second=("--dangerously-skip-permissions", "--continue", "-p", "@PROMPT@"),
    tool="Bash",
    turns=task(
        (
            Call("Read", {"file_path": "@REPO@/calc.py"}),
            Call("Read", {"file_path": "@REPO@/README.md"}),
        ),
        Call(
            "Edit",
            {"file_path": "@REPO@/calc.py", "old_string": WRONG, "new_string": RIGHT},
        ),
        Call("Bash", {"command": RUN, "description": "Run the program"}),
    ),
    then=question(Call("Bash", {"command": LOOK, "description": "Show the file"})),
    node=22,
)

OPENCODE = Client(
    name="opencode",
    packages=(("opencode-ai",),),
    program="node_modules/.bin/opencode",
    api="chat",
    environment={},
    quiet={
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
    },
    files={
        ".config/opencode/opencode.json": _json(
            {
                "$schema": "https://opencode.ai/config.json",
                "model": "caesura/@MODEL@",
                "small_model": "caesura/@MODEL@",
                "autoupdate": False,
                "share": "disabled",
                "provider": {
                    "caesura": {
                        "npm": "@ai-sdk/openai-compatible",
                        "options": {"baseURL": "@URL@/v1", "apiKey": "none"},
                        "models": {
                            "@MODEL@": {
                                "limit": {"context": 100000, "output": 8000},
                                "tool_call": True,
                                "reasoning": True,
                            }
                        },
                    }
                },
                "permission": {"*": "allow"},
            }
        )
    },
    first=("run", "@PROMPT@"),
    second=("run", "--continue", "@PROMPT@"),
    tool="bash",
    turns=task(
        (
            Call("read", {"filePath": "@REPO@/calc.py"}),
            Call("read", {"filePath": "@REPO@/README.md"}),
        ),
        Call("edit", {"filePath": "@REPO@/calc.py", "oldString": WRONG, "newString": RIGHT}),
        Call("bash", {"command": RUN, "description": "Run the program"}),
    ),
    then=question(Call("bash", {"command": LOOK, "description": "Show the file"})),
    node=20,
)

CLINE = Client(
    name="Cline",
    packages=(("cline",),),
    program="node_modules/.bin/cline",
    api="chat",
    environment={},
    quiet={"CLINE_TELEMETRY_DISABLED": "1", "CLINE_NO_AUTO_UPDATE": "1"},
    files={},
    setup=(
        *("auth", "--provider", "openai-compatible", "--apikey", "none"),
        *("--modelid", "@MODEL@", "--baseurl", "@URL@/v1"),
    ),
    first=("--json", "@PROMPT@"),
    second=(),
    tool="run_commands",
    turns=task(
        (
            Call(
                "read_files", {"files": [{"path": "@REPO@/calc.py"}, {"path": "@REPO@/README.md"}]}
            ),
        ),
        Call("editor", {"path": "@REPO@/calc.py", "old_text": WRONG, "new_text": RIGHT}),
        Call("run_commands", {"commands": [RUN]}),
    ),
    node=20,
)

QWEN = Client(
    name="Qwen Code",
    packages=(("@qwen-code/qwen-code",),),
    program="node_modules/.bin/qwen",
    api="chat",
    environment={
        "OPENAI_API_KEY": "none",
        "OPENAI_BASE_URL": "@URL@/v1",
        "OPENAI_MODEL": "@MODEL@",
    },
    quiet={},
    files={
        ".qwen/settings.json": _json(
            {
                "security": {"auth": {"selectedType": "openai"}},
                "model": {"name": "@MODEL@"},
                "general": {"enableAutoUpdate": False},
                "telemetry": {"enabled": False},
                "privacy": {"usageStatisticsEnabled": False},
            }
        )
    },
    first=("--yolo", "@PROMPT@"),
    second=("--yolo", "--continue", "@PROMPT@"),
    tool="run_shell_command",
    turns=task(
        (
            Call("read_file", {"file_path": "@REPO@/calc.py"}),
            Call("read_file", {"file_path": "@REPO@/README.md"}),
        ),
        Call("edit", {"file_path": "@REPO@/calc.py", "old_string": WRONG, "new_string": RIGHT}),
        Call("run_shell_command", {"command": RUN, "is_background": False}),
    ),
    then=question(Call("run_shell_command", {"command": LOOK, "is_background": False})),
    node=22,
)

CONTINUE = Client(
    name="Continue",
    packages=(("@continuedev/cli",),),
    program="node_modules/.bin/cn",
    api="chat",
    environment={},
    quiet={"CONTINUE_CLI_ENABLE_TELEMETRY": "0", "CONTINUE_METRICS_ENABLED": "0"},
    files={
        ".continue/config.yaml": """name: caesura
version: 1.0.0
schema: v1
models:
  - name: @MODEL@
    provider: openai
    model: @MODEL@
    apiBase: @URL@/v1
    apiKey: none
    roles: [chat, edit, apply]
    capabilities: [tool_use]
    defaultCompletionOptions:
      contextLength: 100000
      maxTokens: 4000
"""
    },
    first=("--config", "@HOME@/.continue/config.yaml", "--auto", "-p", "@PROMPT@"),
    second=("--config", "@HOME@/.continue/config.yaml", "--auto", "--resume", "-p", "@PROMPT@"),
    tool="Bash",
    turns=task(
        (
            Call("Read", {"filepath": "@REPO@/calc.py"}),
            Call("Read", {"filepath": "@REPO@/README.md"}),
        ),
        Call("Edit", {"file_path": "@REPO@/calc.py", "old_string": WRONG, "new_string": RIGHT}),
        Call("Bash", {"command": RUN}),
    ),
    then=question(Call("Bash", {"command": LOOK})),
    node=20,
)

PI = Client(
    name="pi",
    packages=(("@earendil-works/pi-coding-agent",), ("@mariozechner/pi-coding-agent",)),
    program="node_modules/.bin/pi",
    api="chat",
    environment={},
    quiet={"PI_OFFLINE": "1", "PI_TELEMETRY": "0"},
    files={
        ".pi/agent/models.json": _json(
            {
                "providers": {
                    "caesura": {
                        "baseUrl": "@URL@/v1",
                        "api": "openai-completions",
                        "apiKey": "none",
                        "models": [
                            {
                                "id": "@MODEL@",
                                "reasoning": True,
                                "contextWindow": 100000,
                                "maxTokens": 8000,
                            }
                        ],
                    }
                }
            }
        )
    },
    first=("--provider", "caesura", "--model", "@MODEL@", "-p", "@PROMPT@"),
    second=("--provider", "caesura", "--model", "@MODEL@", "--continue", "-p", "@PROMPT@"),
    tool="bash",
    turns=task(
        (
            Call("read", {"path": "@REPO@/calc.py"}),
            Call("read", {"path": "@REPO@/README.md"}),
        ),
        Call("edit", {"path": "@REPO@/calc.py", "edits": [{"oldText": WRONG, "newText": RIGHT}]}),
        Call("bash", {"command": RUN}),
    ),
    then=question(Call("bash", {"command": LOOK})),
    node=22,
)

_BLOCK = """calc.py
```python
<<<<<<< SEARCH
{}
=======
{}
>>>>>>> REPLACE
```
"""
_WORSE = "    return a * b"
_SUM = Turn(
    "The test fails, since a product is no sum. I write the sum.",
    "A sum it is.\n\n" + _BLOCK.format(_WORSE, RIGHT),
)
AIDER = Client(
    name="aider",
    packages=(("aider-chat",),),
    program="bin/aider",
    api="chat",
    environment={"OPENAI_API_KEY": "none", "OPENAI_API_BASE": "@URL@/v1"},
    quiet={"LITELLM_LOCAL_MODEL_COST_MAP": "True"},
    files={
        ".aider.conf.yml": """model: openai/@MODEL@
edit-format: diff
show-model-warnings: false
check-update: false
analytics-disable: true
gitignore: false
"""
    },
    first=(
        *("--yes-always", "--no-auto-commits", "--auto-test", "--test-cmd", TEST),
        *("--message", "@PROMPT@", "calc.py"),
    ),
    second=(),
    tool="",
    turns=(
        Turn(
            "The function subtracts. I try a product, and see what the test says of it.",
            "This should do.\n\n" + _BLOCK.format(WRONG, _WORSE),
        ),
        *[_SUM] * 4,  # aider puts answers of its own before it tells what the test said
    ),
    python=10,
)

MINI = Client(
    name="mini-swe-agent",
    packages=(("mini-swe-agent",),),
    program="bin/mini",
    api="chat",
    environment={
        "OPENAI_API_KEY": "none",
        "OPENAI_API_BASE": "@URL@/v1",
        "MSWEA_CONFIGURED": "true",
        "MSWEA_COST_TRACKING": "ignore_errors",
    },
    quiet={"LITELLM_LOCAL_MODEL_COST_MAP": "True", "MSWEA_SILENT_STARTUP": "1"},
    files={},
    first=(
        *("--model", "openai/@MODEL@", "--yolo", "--exit-immediately", "--cost-limit", "0"),
        *("--output", "@HOME@/trajectory.json", "--task", "@PROMPT@"),
    ),
    second=(),
    tool="bash",
    turns=task(
        (Call("bash", {"command": "cat calc.py"}), Call("bash", {"command": "cat README.md"})),
        Call("bash", {"command": MEND}),
        Call("bash", {"command": RUN}),
        Turn(
            "It printed five, so the task is done.",
            "",
            (Call("bash", {"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"}),),
        ),
    ),
)

OPENHANDS = Client(
    name="OpenHands",
    packages=(("openhands-sdk", "openhands-tools"),),
    program="bin/python",
    api="chat",
    environment={},
    quiet={"LITELLM_LOCAL_MODEL_COST_MAP": "True", "OPENHANDS_SUPPRESS_BANNER": "1"},
    files={
        "ask.py": """import sys
from uuid import UUID

from openhands.sdk import LLM, Agent, Conversation, Tool
from openhands.tools.file_editor import FileEditorTool
from openhands.tools.terminal import TerminalTool

llm = LLM(model="openai/@MODEL@", base_url="@URL@/v1", api_key="none")
tools = [Tool(name=TerminalTool.name), Tool(name=FileEditorTool.name)]
conversation = Conversation(
    Agent(llm=llm, tools=tools),
    workspace="@REPO@",
    persistence_dir="@HOME@/conversations",
    conversation_id=UUID(int=1),
)
conversation.send_message(sys.argv[1])
conversation.run()
"""
    },
    first=("@HOME@/ask.py", "@PROMPT@"),
    second=("@HOME@/ask.py", "@PROMPT@"),
    tool="terminal",
    turns=task(
        (
            Call("file_editor", {"command": "view", "path": "@REPO@/calc.py"}),
            Call("file_editor", {"command": "view", "path": "@REPO@/README.md"}),
        ),
        Call(
            "file_editor",
            {
                "command": "str_replace",
                "path": "@REPO@/calc.py",
                "old_str": WRONG,
                "new_str": RIGHT,
            },
        ),
        Call("terminal", {"command": RUN}),
    ),
    then=question(Call("terminal", {"command": LOOK})),
    python=12,
)

CLIENTS = (CODEX, CLAUDE, OPENCODE, CLINE, QWEN, CONTINUE, PI, AIDER, MINI, OPENHANDS)
