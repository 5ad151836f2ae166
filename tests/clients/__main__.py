"""Check servers with client libraries: `python -m tests.clients [--shell NAME] [--write]`.

Each server runs the bundled model on the real engine. The checks run in the environment of
requirements/clients.txt. Exits 1 if a check fails that docs/clients.md lists as passing.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.clients.check import Result
from tests.clients.servers import MODEL, ROOT, serving
from tests.clients.table import PAGE, Key, failing, page, read

CLIENTS = ROOT / ".cache" / "clients" / "bin"
SHELLS = {
    "serve": "caesura serve",
    "plugin": "vllm serve with the plugin",
    "vllm": "vllm serve",
}
SUITES = ("open-responses", "openai-chat", "anthropic")
LIBRARIES = (
    "openai",
    "openai-agents",
    "pydantic-ai-slim",
    "langchain-openai",
    "langchain",
    "litellm",
    "smolagents",
    "anthropic",
    "llm-comply",
)


def main() -> int:
    """Run the checks, print what did not pass, and compare with the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--shell",
        choices=SHELLS,
        action="append",
        help="a server to check, repeatable; default: serve, and vllm with --write",
    )
    parser.add_argument("--write", action="store_true", help=f"write {PAGE}")
    parser.add_argument("--only", nargs="+", default=[], help="parts of library and feature")
    args = parser.parse_args()
    if args.write and args.only:
        parser.error("--write needs all checks: leave out --only")
    shells = args.shell or (["serve", "vllm"] if args.write else ["serve"])
    results: dict[str, dict[Key, Result]] = {}
    suites: list[list[str]] = []
    with tempfile.TemporaryDirectory(prefix="caesura-clients-") as folder:
        for name in (SHELLS[each] for each in shells):
            with serving(name, Path(folder)) as url:
                results[name] = checked(name, url, args.only)
                if not args.only:
                    suites += [comply(name, url, suite) for suite in SUITES]
    before = (ROOT / PAGE).read_text() if (ROOT / PAGE).exists() else ""
    worse = [
        (name, each)
        for name, found in results.items()
        if name != SHELLS["vllm"]
        for each in failing(found.values(), read(before, name))
    ]
    for name, each in worse:
        print(f"WORSE with {name}: {each.library}: {each.feature}: {each.reason}")
    for row in suites:
        print(*row, sep=" | ")
    if args.write:
        (ROOT / PAGE).write_text(page(results, versions(), suites))
    return 1 if worse and not args.write else 0


def checked(name: str, url: str, only: list[str]) -> dict[Key, Result]:
    """Run the checks against one server; print those that do not pass, and the totals."""
    command = [str(CLIENTS / "python"), "-m", "tests.clients.checks", url, MODEL, *only]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    found: dict[Key, Result] = {}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for line in process.stdout:
            result = Result(**json.loads(line))
            found[result.library, result.feature] = result
            if result.outcome != "pass":
                print(f"{name}: {result.library}: {result.feature}: {result.outcome}", flush=True)
                print(f"    {result.reason}", flush=True)
    if process.returncode:
        raise RuntimeError(f"the checks ended with exit code {process.returncode}")
    passed = sum(each.outcome == "pass" for each in found.values())
    print(f"{name}: {passed} of {len(found)} checks pass", flush=True)
    return found


def comply(name: str, url: str, suite: str) -> list[str]:
    """Run a suite of llm-comply against a server; return its row of the page."""
    command = [str(CLIENTS / "llm-comply"), "run", "--format", suite, "--json"]
    options = ("--base-url", f"{url}/v1", "--api-key", "none", "--model", MODEL, "--timeout", "300")
    ended = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    found = json.loads(ended.stdout[ended.stdout.index("{") :])
    by_status: dict[str, list[str]] = {"passed": [], "failed": [], "skipped": []}
    for each in found["results"]:
        by_status.setdefault(each["status"].lower(), []).append(each["id"])
    counts = [str(len(by_status[status])) for status in ("passed", "failed", "skipped")]
    return ["llm-comply", suite, name, *counts, ", ".join(by_status["failed"])]


def versions() -> dict[str, str]:
    """Return the versions of the libraries in the environment of the checks."""
    code = "import importlib.metadata as m, sys; print(*map(m.version, sys.argv[1:]))"
    command = [str(CLIENTS / "python"), "-c", code, *LIBRARIES]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return dict(zip(LIBRARIES, found, strict=True))


if __name__ == "__main__":
    sys.exit(main())
